//! Options of the namesakes that are not there, with the reason.

/// The subcommands of an option, its name, and the reason for its refusal.
type Refusal = (&'static [&'static str], &'static str, &'static str);

const CONTEXT: &str = "a context is an attribute of the file: setfattr -n security.selinux sets it";
const CHANGES: &str = "a volume does not change while it is read; follow files in a mount";
const ROOT: &str = "the root of a volume is never removed or renamed";

/// The options that are refused.
const REFUSED: &[Refusal] = &[
    (&["cp", "mv", "mkdir", "mknod", "mkfifo"], "-Z", CONTEXT),
    (&["cp", "mv", "mkdir", "mknod", "mkfifo"], "--context", CONTEXT),
    (&["rm"], "--no-preserve-root", ROOT),
    (&["cp"], "--copy-contents", "devices and pipes in a volume have no contents"),
    (&["ln"], "-d", "no volume has hard links to directories"),
    (&["ln"], "-F", "no volume has hard links to directories"),
    (&["ln"], "--directory", "no volume has hard links to directories"),
    (&["tail"], "-f", CHANGES),
    (&["tail"], "-F", CHANGES),
    (&["tail"], "--follow", CHANGES),
    (&["tail"], "--pid", CHANGES),
    (&["tail"], "--retry", CHANGES),
    (&["tail"], "-s", CHANGES),
    (&["tail"], "--sleep-interval", CHANGES),
    (&["tail"], "--max-unchanged-stats", CHANGES),
    (&["grep"], "-P", "patterns are matched in linear time, without back-references"),
    (&["grep"], "--perl-regexp", "patterns are matched in linear time, without back-references"),
    (&["grep"], "-R", "a search does not follow links, which may lead in a circle"),
    (&["grep"], "--dereference-recursive", "a search does not follow links, which may lead in a circle"),
    (&["grep"], "--color", "matches are not coloured"),
    (&["grep"], "--colour", "matches are not coloured"),
    (&["grep"], "-T", "output is for programs; pipe it to column"),
    (&["grep"], "--initial-tab", "output is for programs; pipe it to column"),
    (&["grep"], "-d", "-r searches directories; without it they are an error"),
    (&["grep"], "--directories", "-r searches directories; without it they are an error"),
    (&["grep"], "-D", "devices in a volume have no contents"),
    (&["grep"], "--devices", "devices in a volume have no contents"),
    (&["grep"], "--line-buffered", "lines appear at once on a terminal, and in pieces elsewhere"),
    (&["grep"], "--exclude-from", "give each pattern with --exclude"),
    (&["grep"], "--binary-files", "-a treats all files as text, and -I passes over others"),
    (&["grep"], "--no-group-separator", "groups of lines are separated by '--'"),
    (&["grep"], "--group-separator", "groups of lines are separated by '--'"),
    (&["grep"], "-U", "files are never converted"),
    (&["grep"], "--binary", "files are never converted"),
];

/// Returns an option that a subcommand refuses, and the reason. `option` may come with its value.
pub(crate) fn find(command: &str, option: &str) -> Option<(&'static str, &'static str)> {
    let option = option.split('=').next().unwrap_or(option);
    REFUSED
        .iter()
        .find(|(commands, name, _)| *name == option && commands.contains(&command))
        .map(|(_, name, reason)| (*name, *reason))
}
