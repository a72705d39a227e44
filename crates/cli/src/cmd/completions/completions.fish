
# Asks extern4 for paths in volumes, partitions and names.
function __fish_extern4_candidates
    set -l words (commandline -opc) (commandline -ct)
    $words[1] completions --candidates (math (count $words) - 1) fish -- $words 2>/dev/null
end
complete -c extern4 -a '(__fish_extern4_candidates)'
complete -c extern4 -l as -x -a '(__fish_extern4_candidates)'
