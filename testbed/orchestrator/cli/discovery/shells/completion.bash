# Completion of longhaul for bash: eval "$(longhaul completion bash)"
_longhaul() {
    mapfile -t COMPREPLY < <(@ASK@ --line="${COMP_LINE:0:COMP_POINT}" --breaks="$COMP_WORDBREAKS" 2> /dev/null)
    case "${COMPREPLY[*]: -1}" in *[=/.]) compopt -o nospace 2> /dev/null ;; esac
}
complete -o bashdefault -o default -F _longhaul longhaul
# sudo, where the package bash-completion does not complete what comes after it; and make in this repository
_longhaul_sudo() { [[ $COMP_LINE == *longhaul* ]] && _longhaul; }
if declare -F _completion_loader > /dev/null; then
    _completion_loader make
elif ! complete -p sudo > /dev/null 2>&1; then
    complete -o bashdefault -o default -F _longhaul_sudo sudo
fi
_longhaul_other_make=$(complete -p make 2> /dev/null | sed -n 's/.* -F \([^ ]*\).*/\1/p')
[[ $_longhaul_other_make == _longhaul_make ]] && _longhaul_other_make=
_longhaul_make() {
    if [[ Makefile -ef @MAKEFILE@ ]]; then
        _longhaul
    elif [[ -n $_longhaul_other_make ]]; then
        "$_longhaul_other_make" "$@"
    fi
}
complete -o bashdefault -o default -F _longhaul_make make
