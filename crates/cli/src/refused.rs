//! Options of the namesakes that are not there, and operands that a command does not take, with the
//! reason.
//!
//! `main` asks it when clap does not know an argument, and prints the reason. It is the one list of
//! such options.

/// The subcommands of an option, its name, and the reason for its refusal.
type Refusal = (&'static [&'static str], &'static str, &'static str);

const CONTEXT: &str = "a context is an attribute of the file: setfattr -n security.selinux sets it";
const CHANGES: &str =
    "an open volume has no other writer, so no file grows; follow files in a mount";
const HTML: &str =
    "a page has links that a browser follows, and a path in a volume has no URL; -X writes XML";
const RULES: &str = "no file of a volume says what is shown; -P and -I do";
const ROOT: &str = "the root of a volume is never removed or renamed";

const NO_REPAIR: &str =
    "it changes nothing: recover replays the journal, and e2fsck -p or -y repairs";
const BAD_BLOCKS: &str = "the list of bad blocks is never changed; e2fsck does";

/// The options that are refused.
const REFUSED: &[Refusal] = &[
    (&["cp", "mv", "mkdir", "mknod", "mkfifo"], "-Z", CONTEXT),
    (
        &["cp", "mv", "mkdir", "mknod", "mkfifo"],
        "--context",
        CONTEXT,
    ),
    (&["rm"], "--no-preserve-root", ROOT),
    (
        &["cp"],
        "--copy-contents",
        "devices and pipes in a volume have no contents",
    ),
    (&["head", "tail"], "-NUM", "write -n NUM with other letters"),
    (&["ln"], "-d", "no volume has hard links to directories"),
    (&["ln"], "-F", "no volume has hard links to directories"),
    (
        &["ln"],
        "--directory",
        "no volume has hard links to directories",
    ),
    (
        &["mkfs"],
        "-C",
        "clusters need the feature bigalloc, which extern4 does not write",
    ),
    (
        &["mkfs"],
        "-z",
        "a copy of the image, or of what is on the device, undoes everything",
    ),
    (&["check"], "-p", NO_REPAIR),
    (&["check"], "-a", NO_REPAIR),
    (&["check"], "-y", NO_REPAIR),
    (&["check"], "-r", "it has no meaning for e2fsck either"),
    (
        &["check"],
        "-c",
        "no medium is searched for bad blocks; badblocks(8) does",
    ),
    (&["check"], "-k", BAD_BLOCKS),
    (&["check"], "-l", BAD_BLOCKS),
    (&["check"], "-L", BAD_BLOCKS),
    (&["check"], "-d", "--json prints what is found in full"),
    (
        &["check"],
        "-D",
        "no directory is rewritten; e2fsck -fD does",
    ),
    (
        &["check"],
        "-F",
        "the device is read as it is when the check begins",
    ),
    (&["check"], "-V", "extern4 --version shows the version"),
    (&["check"], "-b", "--superblock BLOCK checks by a copy"),
    (
        &["check"],
        "-B",
        "the size of blocks follows from the superblock",
    ),
    (&["check"], "-j", "--journal PATH reads a journal elsewhere"),
    (
        &["check"],
        "-E",
        "no extended option changes a check that repairs nothing",
    ),
    (&["check"], "-z", "nothing is changed that could be undone"),
    (
        &["tune"],
        "-f",
        "nothing is refused that force could make safe",
    ),
    (&["tune"], "-l", "extern4 info shows the superblock"),
    (
        &["tune"],
        "-E",
        "these settings are made by mkfs -E, or extern4 does not use them",
    ),
    (
        &["tune"],
        "-I",
        "every inode would have to be rewritten; build makes a new volume",
    ),
    (&["tune"], "-z", "a copy of the image undoes everything"),
    (
        &["getfacl"],
        "-L",
        "a walk does not follow links, which may lead in a circle",
    ),
    (
        &["getfacl"],
        "--logical",
        "a walk does not follow links, which may lead in a circle",
    ),
    (
        &["getfacl", "setfacl"],
        "-v",
        "extern4 --version shows the version",
    ),
    (
        &["getfacl", "setfacl"],
        "--version",
        "extern4 --version shows the version",
    ),
    (
        &["ls"],
        "-D",
        "output is for people and programs, not for Emacs; use --json",
    ),
    (
        &["ls"],
        "--dired",
        "output is for people and programs, not for Emacs; use --json",
    ),
    (&["ls"], "--hyperlink", "a path in a volume has no URL"),
    (
        &["ls"],
        "--show-control-chars",
        "control bytes are never sent to a terminal",
    ),
    (&["du"], "-D", "symbolic links are counted themselves"),
    (
        &["du"],
        "--dereference-args",
        "symbolic links are counted themselves",
    ),
    (&["du"], "-H", "symbolic links are counted themselves"),
    (&["du"], "-L", "symbolic links are counted themselves"),
    (
        &["du"],
        "--dereference",
        "symbolic links are counted themselves",
    ),
    (&["du"], "--files0-from", "use xargs -0"),
    (&["du"], "--time", "find -printf shows times"),
    (&["du"], "--time-style", "find -printf shows times"),
    (&["diff"], "-NUM", "write -U NUM"),
    (&["tree"], "--device", "a volume has no device number"),
    (
        &["tree"],
        "-A",
        "lines are drawn with the characters of UTF-8, or with --charset=ASCII",
    ),
    (
        &["tree"],
        "-S",
        "lines are drawn with the characters of UTF-8, or with --charset=ASCII",
    ),
    (&["tree"], "-o", "redirect the output with >"),
    (&["tree"], "-H", HTML),
    (&["tree"], "-T", HTML),
    (&["tree"], "-R", HTML),
    (&["tree"], "--nolinks", HTML),
    (&["tree"], "--hintro", HTML),
    (&["tree"], "--houtro", HTML),
    (&["tree"], "--gitignore", RULES),
    (&["tree"], "--gitfile", RULES),
    (&["tree"], "--info", RULES),
    (&["tree"], "--infofile", RULES),
    (
        &["tree"],
        "--fromfile",
        "tree(1) draws the paths that extern4 find prints",
    ),
    (
        &["tree"],
        "--fflinks",
        "tree(1) draws the paths that extern4 find prints",
    ),
    (
        &[
            "cat",
            "head",
            "tail",
            "grep",
            "cmp",
            "sha256sum",
            "ls",
            "stat",
            "du",
            "df",
            "tree",
        ],
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
];

/// Commands, and the reason why they take no further operand; `{}` stands for it.
const OPERANDS: &[(&str, &str)] = &[
    (
        "export",
        "the output follows -o: extern4 export IMAGE:/PATH -o {}",
    ),
    (
        "get",
        "the contents go to standard output: extern4 get IMAGE:/PATH > {}",
    ),
    (
        "put",
        "the contents come from standard input: extern4 put IMAGE:/PATH < {}",
    ),
    (
        "tune",
        "each setting has an option: extern4 tune IMAGE -L LABEL",
    ),
];

/// Options of GNU diff that are refused, in groups with one reason.
const DIFF: &[(&str, &str)] = &[
    (
        "-c -C --context",
        "pipes do it: diff -c <(extern4 cat IMG:/a) <(extern4 cat IMG:/b); patch(1) reads -u as well",
    ),
    (
        "-y --side-by-side -W --width --left-column --suppress-common-lines",
        "pipes do it: diff -y <(extern4 cat IMG:/a) <(extern4 cat IMG:/b)",
    ),
    (
        "-e --ed -n --rcs -D --ifdef --GTYPE-group-format --old-group-format --new-group-format --unchanged-group-format --changed-group-format --line-format --LTYPE-line-format --old-line-format --new-line-format --unchanged-line-format",
        "pipes do it: diff -e <(extern4 cat IMG:/a) <(extern4 cat IMG:/b)",
    ),
    (
        "-t --expand-tabs -T --initial-tab --tabsize",
        "a patch has the lines as they are; pipe it to expand(1) to look at it",
    ),
    (
        "--suppress-blank-empty",
        "a patch has the lines as they are; pipe it to sed 's/^ $//'",
    ),
    ("-l --paginate", "pipe the output to pr(1)"),
    (
        "--ignore-file-name-case",
        "names in a volume that differ in case are two files",
    ),
    (
        "--horizon-lines --speed-large-files",
        "one way to compare serves all texts; -d finds fewer changes",
    ),
    ("--palette", "the colours are GNU diff's"),
    ("-v --version", "extern4 --version shows the version"),
];

/// Options of GNU tar that are refused, in groups with one reason.
const TAR: &[(&str, &str)] = &[
    (
        "--catenate --concatenate -A --delete --append -r --update -u --remove-files --verify -W --add-file",
        "an archive is made as a whole: use -c, or tar(1) for an archive of the host",
    ),
    (
        "--diff --compare -d",
        "diff compares a volume with an archive",
    ),
    (
        "--check-device --no-check-device -g --listed-incremental -G --incremental --level --newer-mtime -N --newer --after-date",
        "incremental archives of GNU tar are not made; diff and build --update find what differs",
    ),
    (
        "-L --tape-length -M --multi-volume -F --info-script --new-volume-script --rmt-command --rsh-command --volno-file -b --blocking-factor --record-size -i --ignore-zeros -V --label --test-label -K --starting-file --occurrence -R --block-number",
        "an archive is one file, and no tape",
    ),
    (
        "-H --format --old-archive --portability --pax-option --sparse-version --hole-detection --no-acls --no-selinux --no-xattrs --xattrs-exclude --xattrs-include --hard-dereference --absolute-names -P",
        "archives have the format pax, with holes, ACLs and attributes",
    ),
    (
        "-I --use-compress-program --lzip --lzma --lzop -Z --compress --uncompress",
        "gzip, bzip2, xz and zstd are known; pipe the archive to other programs",
    ),
    (
        "--clamp-mtime --group --group-map --mode --mtime -m --touch --owner --owner-map --sort --atime-preserve --no-delay-directory-restore",
        "build changes owners, modes and times of what is in an archive, and writes a volume",
    ),
    (
        "-T --files-from --null --no-null --verbatim-files-from --no-verbatim-files-from --unquote --no-unquote --no-recursion -X --exclude-from --exclude-ignore --exclude-ignore-recursive",
        "give the names, or --exclude and --include, on the command line",
    ),
    (
        "--exclude-backups --exclude-caches --exclude-caches-all --exclude-caches-under --exclude-tag --exclude-tag-all --exclude-tag-under --exclude-vcs --exclude-vcs-ignores --anchored --ignore-case --no-anchored --no-ignore-case --no-wildcards --no-wildcards-match-slash --wildcards-match-slash",
        "give patterns with --exclude and --include",
    ),
    (
        "--one-top-level --recursive-unlink --backup --suffix --transform --xform -w --interactive --confirmation",
        "unpack into a new directory, and move files with mv",
    ),
    (
        "-O --to-stdout --to-command --ignore-command-error --no-ignore-command-error",
        "cat and get write contents to standard output",
    ),
    (
        "--dereference",
        "links are stored as links; give the file that a link leads to",
    ),
    (
        "--checkpoint --checkpoint-action --index-file -l --check-links --no-quote-chars --quote-chars --quoting-style --show-defaults --show-omitted-dirs --show-snapshot-field-ranges --show-transformed-names --show-stored-names --totals --warning --ignore-failed-read --restrict",
        "-v prints members, and messages are the same for all commands",
    ),
    ("--utc", "TZ=UTC shows times in UTC"),
    ("-? --usage", "--help shows the options"),
    ("--version", "extern4 --version shows the version"),
];

/// Returns an option that a subcommand refuses, and the reason. `option` may come with its value.
pub(crate) fn find(command: &str, option: &str) -> Option<(&'static str, &'static str)> {
    let option = option.split('=').next().unwrap_or(option);
    let is_number = option.len() > 1 && option[1..].bytes().all(|byte| byte.is_ascii_digit());
    let option = if is_number { "-NUM" } else { option };
    let groups = match command {
        "tar" => TAR,
        "diff" => DIFF,
        _ => &[],
    };
    let grouped = groups
        .iter()
        .flat_map(|(names, reason)| names.split(' ').map(move |name| (name, *reason)));
    REFUSED
        .iter()
        .filter(|(commands, ..)| commands.contains(&command))
        .map(|(_, name, reason)| (*name, *reason))
        .chain(grouped)
        .find(|(name, _)| *name == option)
}

/// Returns why a subcommand does not take a further operand.
pub(crate) fn operand(command: &str, operand: &str) -> Option<String> {
    let (_, reason) = OPERANDS.iter().find(|(name, _)| *name == command)?;
    Some(reason.replace("{}", operand))
}
