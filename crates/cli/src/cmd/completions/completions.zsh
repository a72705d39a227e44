
# Asks extern4 for paths in volumes, partitions, names and lists, and leaves the rest to _extern4_words.
_extern4() {
    local -a asked found
    asked=("${(@Q)words}")
    found=("${(@f)$("$asked[1]" completions --candidates $((CURRENT - 1)) zsh -- "$asked[@]" 2>/dev/null)}")
    if [[ -z "$found[1]" ]]; then
        _extern4_words "$@"
        return
    fi
    compadd -S '' -- "${(@M)found:#*[/:=]}"
    compadd -- "${(@)found:#*[/:=]}"
}

if [ "$funcstack[1]" = "_extern4" ]; then
    _extern4 "$@"
else
    compdef _extern4 extern4
fi
