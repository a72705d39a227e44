//! Options of the namesakes that are not there, with the reason.
//!
//! `main` asks it when clap does not know an option, and prints the reason. It is the one list of
//! such options.

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
    (&["tune"], "-f", "nothing is refused that force could make safe"),
    (&["tune"], "-j", "a journal is made by mkfs, or by tune2fs"),
    (&["tune"], "-J", "a journal is made by mkfs, or by tune2fs"),
    (&["tune"], "-l", "extern4 info shows the superblock"),
    (&["tune"], "-Q", "quota files are made by mkfs -O quota"),
    (&["tune"], "-E", "these are settings of RAID and of checks that extern4 does not use"),
    (&["tune"], "-I", "every inode would have to be rewritten; build makes a new volume"),
    (&["tune"], "-z", "a copy of the image undoes everything"),
    (&["getfacl"], "-L", "a walk does not follow links, which may lead in a circle"),
    (&["getfacl"], "--logical", "a walk does not follow links, which may lead in a circle"),
    (&["getfacl", "setfacl"], "-v", "extern4 --version shows the version"),
    (&["getfacl", "setfacl"], "--version", "extern4 --version shows the version"),
    (&["ls"], "--author", "the author of a file is its owner"),
    (&["ls"], "--block-size", "sizes are in bytes, or with -h in units that fit"),
    (&["ls"], "-D", "output is for people and programs, not for Emacs; use --json"),
    (&["ls"], "--dired", "output is for people and programs, not for Emacs; use --json"),
    (&["ls"], "--hyperlink", "a path in a volume has no URL"),
    (&["ls"], "--show-control-chars", "control bytes are never sent to a terminal"),
    (&["ls", "du"], "--si", "units are powers of 1024"),
    (&["df"], "-H", "units are powers of 1024"),
    (&["df"], "--si", "units are powers of 1024"),
    (&["ls"], "-T", "columns are padded with spaces"),
    (&["ls"], "--tabsize", "columns are padded with spaces"),
    (&["ls"], "-v", "names are sorted by bytes; sort -V sorts versions"),
    (&["stat"], "--cached", "attributes of a volume are always those on it"),
    (&["du"], "-D", "symbolic links are counted themselves"),
    (&["du"], "--dereference-args", "symbolic links are counted themselves"),
    (&["du"], "-H", "symbolic links are counted themselves"),
    (&["du"], "-L", "symbolic links are counted themselves"),
    (&["du"], "--dereference", "symbolic links are counted themselves"),
    (&["du"], "--files0-from", "use xargs -0"),
    (&["du"], "--time", "find -printf shows times"),
    (&["du"], "--time-style", "find -printf shows times"),
    (&["df"], "--output", "--json has every figure"),
    (&["df"], "--sync", "the command has written everything before"),
    (&["df"], "-v", "it has no meaning for GNU df either"),
    (&["grep"], "-NUM", "write -C NUM"),
    (
        &["cat", "head", "tail", "grep", "cmp", "sha256sum", "ls", "stat", "du", "df"],
        "--version",
        "extern4 --version shows the version",
    ),
    (&["grep"], "-V", "extern4 --version shows the version"),
    (&["cmp"], "-v", "extern4 --version shows the version"),
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
    let is_number = option.len() > 1 && option[1..].bytes().all(|byte| byte.is_ascii_digit());
    let option = if is_number { "-NUM" } else { option };
    REFUSED
        .iter()
        .find(|(commands, name, _)| *name == option && commands.contains(&command))
        .map(|(_, name, reason)| (*name, *reason))
}
