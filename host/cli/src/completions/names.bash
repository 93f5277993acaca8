
# Names of the project's tools, hooks, agents, skills and sessions.
_harness_with_names() {
    _harness "$@"
    local word path="" of="" at="" project=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        word="${COMP_WORDS[at]}"
        case "$word" in
            -C|--project) at=$((at + 1)); project=(-C "${COMP_WORDS[at]}") ;;
            --policy|--color|--workspace|--args|--within|--confirm|--case|--junit) at=$((at + 1)) ;;
            -*) ;;
            *) path="$path $word" ;;
        esac
    done
    case "${COMP_WORDS[COMP_CWORD-1]}$path" in
        --resume*|*" sessions show"|*" sessions resume"|*" sessions replay") of=sessions ;;
        *" call") of=tools ;;
        *" test"|*" test "*) of=tested ;;
        *" inspect"|*" inspect "*|*" policy show") of=all ;;
    esac
    if [[ -n "$of" && "${COMP_WORDS[COMP_CWORD]}" != -* ]]; then
        COMPREPLY+=($(compgen -W "$("${COMP_WORDS[0]}" "${project[@]}" names "$of" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}
complete -F _harness_with_names -o bashdefault -o default harness
