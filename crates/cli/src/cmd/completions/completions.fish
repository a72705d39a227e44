
# Asks extern4 for paths in volumes, partitions, names and lists.
function __fish_extern4_candidates
    set -l words (commandline -opc) (commandline -ct)
    $words[1] completions --candidates (math (count $words) - 1) fish -- $words 2>/dev/null
end
complete -c extern4 -a '(__fish_extern4_candidates)'
complete -c extern4 -l as -x -a '(__fish_extern4_candidates)'
complete -c extern4 -n '__fish_seen_subcommand_from mount' -s o -x -a '(__fish_extern4_candidates)'
complete -c extern4 -n '__fish_seen_subcommand_from mkfs build tune' -s O -x -a '(__fish_extern4_candidates)'
