
# Asks extern4 for paths in volumes, partitions, names and lists, and leaves the rest to _extern4.
_extern4_candidates() {
    local words=() fragment rest=$COMP_LINE at
    # bash splits a word at ':' and '@', where no space is.
    for ((at = 0; at < ${#COMP_WORDS[@]}; at++)); do
        fragment=${COMP_WORDS[at]}
        if [[ $at = 0 || $rest = [[:space:]]* || -z $fragment ]]; then
            words+=("$fragment")
        else
            words[${#words[@]} - 1]+=$fragment
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$fragment"}
        [[ $at != "$COMP_CWORD" ]] || local index=$((${#words[@]} - 1))
    done
    # Only the part behind the last split is replaced.
    local word=${words[index]} last=${COMP_WORDS[COMP_CWORD]} kept candidate
    [[ $last != [:@=] ]] || last=
    kept=${word%"$last"}
    kept=${kept//\\/}
    words=("${words[@]//\\/}")
    words=("${words[@]//[\'\"]/}")
    COMPREPLY=()
    while IFS= read -r candidate; do
        candidate=${candidate#"$kept"}
        # An open quote quotes the rest, too.
        [[ $last = [\'\"]* ]] || printf -v candidate %q "$candidate"
        COMPREPLY+=("$candidate")
    done < <("${words[0]}" completions --candidates "$index" bash -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} = 0 ]]; then
        _extern4 "$@"
    elif [[ ${COMPREPLY[0]} = *[/:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _extern4_candidates -o bashdefault -o default extern4
