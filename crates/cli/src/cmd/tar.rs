//! `extern4 tar`: makes, lists and unpacks archives, with the options of GNU tar.

mod as_always;
mod create;
mod extract;
mod list;
mod member_line;
mod old_style;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::build::SourceError;
use extern4::tar::{Compression, Members, TarSource};

use self::as_always::AsAlways;
pub(crate) use self::old_style::with_dashes;
use super::build::Rules;
use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::interruptible;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("mode").required(true).args(["create", "extract", "list"]))]
pub(crate) struct Args {
    /// Make an archive of the files at IMAGE:/PATH
    #[arg(short, long)]
    create: bool,
    /// Unpack an archive into the directory IMAGE:/PATH. Files of its names are replaced, and all
    /// others stay
    #[arg(short = 'x', long, visible_alias = "get")]
    extract: bool,
    /// List the members of an archive
    #[arg(short = 't', long)]
    list: bool,
    /// With -c and without -C: IMAGE:/PATH. With -x: first the directory, unless -C names it. All
    /// others are members of the archive: -x and -t take them and all below them
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// The archive, a file of the host; - or nothing for standard input or output
    #[arg(
        short,
        long,
        value_name = "ARCHIVE",
        default_value = "-",
        hide_default_value = true
    )]
    file: PathBuf,
    /// The directory that the paths of -c start in, or that -x unpacks into
    #[arg(short = 'C', long, value_name = "IMAGE:/PATH")]
    directory: Option<OsString>,
    /// Print each member; with -t, or given twice, with its attributes
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Compress with gzip. A compressed archive is recognised when it is read
    #[arg(short = 'z', long, visible_aliases = ["gunzip", "ungzip"], group = "compression")]
    gzip: bool,
    /// Compress with bzip2
    #[arg(short = 'j', long, group = "compression")]
    bzip2: bool,
    /// Compress with xz
    #[arg(short = 'J', long, group = "compression")]
    xz: bool,
    /// Compress with zstd
    #[arg(long, group = "compression")]
    zstd: bool,
    /// Compress as the suffix of the archive's name says
    #[arg(short, long, group = "compression")]
    auto_compress: bool,
    #[command(flatten)]
    rules: Rules,
    /// Unpack without the first COUNT names of each path
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 0,
        hide_default_value = true
    )]
    strip_components: usize,
    /// Replace no file that is there: each is an error
    #[arg(short, long, group = "existing")]
    keep_old_files: bool,
    /// Pass over files that are there
    #[arg(long, group = "existing")]
    skip_old_files: bool,
    /// Replace only files that are older than the archive's
    #[arg(long, group = "existing")]
    keep_newer_files: bool,
    /// Replace files that are there, as always
    #[arg(long, group = "existing")]
    overwrite: bool,
    /// Keep the attributes of directories that are there
    #[arg(long)]
    no_overwrite_dir: bool,
    /// Keep symbolic links to directories where the archive has directories
    #[arg(long)]
    keep_directory_symlink: bool,
    /// Give files the modes of the archive, as always for the superuser
    #[arg(
        short = 'p',
        long,
        visible_alias = "same-permissions",
        overrides_with = "no_same_permissions"
    )]
    preserve_permissions: bool,
    /// Take the bits of the umask 022 from modes, as always for others
    #[arg(long)]
    no_same_permissions: bool,
    /// Give files the owners of the archive, as always for the superuser
    #[arg(long, overrides_with = "no_same_owner")]
    same_owner: bool,
    /// Have files belong to the caller, as always for others
    #[arg(short = 'o', long)]
    no_same_owner: bool,
    /// Take owners and groups by their numbers, as always
    #[arg(long)]
    numeric_owner: bool,
    /// List times in full
    #[arg(long)]
    full_time: bool,
    #[command(flatten)]
    _as_always: AsAlways,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if args.create {
        create::run(args, app)
    } else if args.extract {
        extract::run(args, app)
    } else {
        list::run(args, app)
    }
}

impl Args {
    /// Returns whether the archive is standard input or output.
    fn is_stream(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Returns the name of the archive for messages.
    fn shown(&self) -> &Path {
        match (self.is_stream(), self.create) {
            (false, _) => &self.file,
            (true, true) => Path::new("standard output"),
            (true, false) => Path::new("standard input"),
        }
    }

    /// Returns the compression of an archive that is made.
    fn compression(&self) -> Option<Compression> {
        if self.gzip {
            Some(Compression::Gzip)
        } else if self.bzip2 {
            Some(Compression::Bzip2)
        } else if self.xz {
            Some(Compression::Xz)
        } else if self.zstd {
            Some(Compression::Zstd)
        } else if self.auto_compress {
            Compression::of_name(&self.file)
        } else {
            None
        }
    }

    /// Chooses the members that these names and all rules of the command line choose.
    fn members<'a>(&self, names: impl IntoIterator<Item = &'a OsString>) -> Members {
        let names = names.into_iter().map(|name| name.as_bytes());
        Members::new(names, self.rules.0.clone())
    }

    /// Opens the archive to be read. Contents that can be read only once go to a file without a
    /// name in `spool`.
    fn archive(&self, spool: &Path, app: &App) -> Result<TarSource, SourceError> {
        interruptible::archive(&self.file, self.shown(), spool, app.stop())
    }
}

/// Reports wrong usage.
fn misused(app: &mut App, message: &str) {
    app.fail(ExitStatus::Usage, message);
}
