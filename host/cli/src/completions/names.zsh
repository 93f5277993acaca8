# Names of the project's tools, hooks, agents, skills and sessions.
_harness_names() {
    local -a typed project names
    local at
    typed=(${(z)LBUFFER})
    for ((at = 1; at < ${#typed}; at++)); do
        case "${typed[at]}" in
            -C|--project) project=(-C "${(Q)typed[at + 1]/#\~\//$HOME/}") ;;
            --project=*) project=(-C "${(Q)${typed[at]#--project=}/#\~\//$HOME/}") ;;
        esac
    done
    names=(${(f)"$(_call_program names harness ${(q)project[@]} names ${@[-1]} 2>/dev/null)"})
    # What zsh says of the argument comes before the kind of name.
    compadd "${@[1,-2]}" -a names
}
