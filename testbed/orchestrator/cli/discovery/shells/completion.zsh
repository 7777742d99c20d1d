# Completion of longhaul for zsh, after compinit: eval "$(longhaul completion zsh)"
_longhaul() {
    local line
    local -a open closed
    for line in "${(@f)$(@ASK@ --line="${(j: :)${(@q)words[1,CURRENT-1]}} $PREFIX" 2> /dev/null)}"; do
        case $line in
            *[=/.]) open+=("$line") ;;
            ?*) closed+=("$line") ;;
        esac
    done
    (( $#open + $#closed )) || { _files; return }
    (( $#open )) && compadd -Q -S '' -- $open
    (( $#closed )) && compadd -Q -- $closed
    return 0
}
compdef _longhaul longhaul
