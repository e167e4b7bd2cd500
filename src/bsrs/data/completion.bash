_bsrs() {
  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""
  case "${COMP_WORDS[*]:1:COMP_CWORD-1} " in
    " ") words="%(first)s --help --version" ;;
%(cases)s
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _bsrs bsrs
