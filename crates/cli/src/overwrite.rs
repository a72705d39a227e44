//! The options that say whether a file gives way to another one of its name.
//!
//! `cp` and `mv` ask it before they replace a file. The last of several options counts, as in GNU's
//! tools.

use extern4::Timespec;

use crate::app::App;
use crate::backup::Backup;
use crate::image_path::ImagePath;

/// The options for files that have the new name already.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Overwrite {
    /// Do not replace a file that is there, and do not mind it either
    #[arg(short, long, overrides_with = "interactive")]
    no_clobber: bool,
    /// Ask before a file is replaced
    #[arg(short, long)]
    interactive: bool,
    /// Replace a file only if it is older than its source
    #[arg(short, long)]
    update: bool,
    #[command(flatten)]
    pub(crate) backup: Backup,
}

impl Overwrite {
    /// Returns whether a file that is there stays without a question.
    pub(crate) fn keeps_all(&self) -> bool {
        self.no_clobber
    }

    /// Returns whether the rules depend on what is there.
    pub(crate) fn is_plain(&self) -> bool {
        !self.no_clobber && !self.interactive && !self.update && !self.backup.is_on()
    }

    /// Returns whether a file with time `there` may be replaced by one with time `source`. Asks the
    /// user, if that is an option.
    pub(crate) fn allows(
        &self,
        source: Timespec,
        there: Timespec,
        shown: &dyn std::fmt::Display,
        app: &App,
    ) -> bool {
        let is_newer = (source.sec, source.nsec) > (there.sec, there.nsec);
        !self.no_clobber
            && (!self.update || is_newer)
            && (!self.interactive || app.confirm(format_args!("overwrite {shown}")))
    }
}

/// Returns the end of a line about a new name: the name that keeps the file that had it.
pub(crate) fn backup_note(kept: Option<&ImagePath>) -> String {
    kept.map_or_else(String::new, |kept| format!(" (backup: {})", kept.quoted()))
}
