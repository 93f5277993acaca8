
# Names of the project's tools, hooks, agents, skills and sessions.
complete -c harness -n "__fish_seen_subcommand_from call" -f -a "(harness names tools 2>/dev/null)"
complete -c harness -n "__fish_seen_subcommand_from test" -f -a "(harness names tested 2>/dev/null)"
complete -c harness -n "__fish_seen_subcommand_from inspect" -f -a "(harness names all 2>/dev/null)"
complete -c harness -n "__fish_seen_subcommand_from policy; and __fish_seen_subcommand_from show" -f -a "(harness names all 2>/dev/null)"
complete -c harness -n "__fish_seen_subcommand_from sessions; and __fish_seen_subcommand_from show resume replay" -f -a "(harness names sessions 2>/dev/null)"
complete -c harness -n "__fish_seen_subcommand_from run" -l resume -x -a "(harness names sessions 2>/dev/null)"
