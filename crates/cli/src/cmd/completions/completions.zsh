
# Asks extern4 for paths in volumes, partitions and names, and leaves the rest to _extern4.
_extern4_candidates() {
    local -a asked found
    asked=("${(@Q)words}")
    found=("${(@f)$("$asked[1]" completions --candidates $((CURRENT - 1)) zsh -- "$asked[@]" 2>/dev/null)}")
    if [[ -z "$found[1]" ]]; then
        _extern4 "$@"
        return
    fi
    compadd -S '' -- "${(@M)found:#*[/:]}"
    compadd -- "${(@)found:#*[/:]}"
}

if [ "$funcstack[1]" = "_extern4" ]; then
    _extern4_candidates "$@"
else
    compdef _extern4_candidates extern4
fi
