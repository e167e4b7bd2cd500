"""The paper's figures and claims, each from one command at any scale."""
