//! Messages about the attributes that copies could not keep.
//!
//! `cp` calls it once at the end of a copy.

use std::os::unix::ffi::OsStrExt as _;

use extern4::copy::{CopyLosses, LostXattr};

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::text::{counted, escape, quoted};

/// Reports the losses, with one message for each kind.
pub(super) fn report(losses: &CopyLosses, app: &mut App) {
    if losses.owners > 0 {
        app.note(format_args!(
            "warning: the owners of {} are not kept: only root can do that",
            counted(losses.owners, "file", "files")
        ));
    }
    for path in &losses.devices {
        let path = escape(path.as_os_str().as_bytes());
        app.fail_at(
            ExitStatus::Failed,
            path,
            "only root can make devices; left out",
        );
    }
    if let Some(LostXattr { path, name, error }) = &losses.first_xattr {
        let message = format!(
            "cannot keep {}, such as {} of {}: {}",
            counted(losses.xattrs, "extended attribute", "extended attributes"),
            escape(name.as_bytes()),
            quoted(escape(path.as_os_str().as_bytes())),
            host_reason(error),
        );
        if losses.is_failure {
            app.fail(ExitStatus::Failed, message);
        } else {
            app.note(format_args!("warning: {message}"));
        }
    }
}
