//! Serves a mount, from the first request to the end of the volume.
//!
//! `mount` calls it when the volume is mounted. When it returns, the volume is closed and every
//! change is on it, or the failure is reported.

use std::io;
use std::process;
use std::sync::{Arc, OnceLock};

use extern4::{PressureWatch, Volume};
use extern4_fuse::{Callbacks, Server};
use tracing::{debug, info, warn};

use super::options::{self, Options, Words};
use super::{Args, Host, Made, Request, close, daemon, open, service};
use crate::app::{App, host_reason};
use crate::control::{Control, Journaling, Setting};
use crate::exit_status::ExitStatus;
use crate::text::counted;

/// The result of closing the volume, once it is closed. The kernel's last request closes it;
/// without that request, the end of [`until_unmounted`] does.
type Closed = Arc<OnceLock<extern4::Result<()>>>;

/// Serves the mount until it ends, closes the volume, and reports failures.
pub(super) fn until_unmounted(args: &Args, host: Host, made: Made, app: &mut App) {
    let Made {
        request: Request {
            image,
            lists,
            options,
        },
        volume,
        dir,
        device,
        mount,
        mounted,
        ending,
    } = made;
    let closed = Closed::default();
    let setting = setting(&lists, &options, &volume);
    let budget = Arc::clone(&options.ext4.budget);
    let callbacks = callbacks(&volume, &closed);
    let server = Arc::new(Server::new(volume.namespace(), options.server, callbacks));
    let mounted = mounted.get_or_init(|| mount);
    let note = |what: &str, error: &io::Error| {
        app.note_at(
            args.dir.display(),
            format_args!("{what}: {}", host_reason(error)),
        );
    };
    let mut control = None;
    let mut is_ready = false;
    let mut pressure = None;
    let ready = || {
        control = Control::start(
            &args.dir,
            &server,
            &volume,
            &image,
            setting,
            host.metrics,
            note,
        );
        info!(
            "{image} is mounted on {dir}; requests come through {}",
            server.transport().name()
        );
        // In the background, the service manager started another process than this one.
        service::tell(&format!(
            "READY=1\nMAINPID={}\nSTATUS={image} on {dir}",
            process::id()
        ));
        if args.detach {
            daemon::detach(&host.nowhere);
        }
        // Without reports, the budget alone bounds the caches.
        pressure = PressureWatch::start(&budget)
            .inspect_err(|error| debug!("no reports of memory pressure: {}", host_reason(error)))
            .ok();
        is_ready = true;
    };
    let served = extern4_fuse::serve(&server, device, ready);
    // Serving ends before the last step of a forced unmount: this waits for that step.
    drop(ending.lock());
    service::tell("STOPPING=1");
    drop(pressure);
    let waiting = control.map(Control::end);
    // The user has seen that the volume is mounted, and may have closed the terminal.
    if is_ready {
        app.switch_to_log();
    }
    let failed = served.is_err();
    if let Err(error) = served {
        app.fail_at(ExitStatus::Failed, &dir, host_reason(&error));
    }
    open::say_ending();
    server.forget_all();
    let mut lost = loss(&server);
    if let Some(why) = &lost {
        app.fail_at(ExitStatus::Failed, &image, why);
    }
    for operation in server.operations() {
        let times = counted(operation.times.count(), "time", "times");
        debug!(
            "{}: {times}, {}",
            operation.name,
            counted(operation.errors, "error", "errors")
        );
    }
    drop(server);
    if failed {
        // The server's end of the device is closed: otherwise the kernel would wait for an answer.
        mounted.clear();
    }
    if let Err(error) = closed.get_or_init(|| close(&volume)) {
        app.error(&image, error);
        if !volume.ext4().is_aborted() {
            lost.get_or_insert_with(|| error.to_string());
        }
    }
    if let Some(waiting) = waiting {
        waiting.tell(lost.as_deref());
    }
    if is_ready {
        info!("{image} is no longer mounted on {dir}");
    }
}

/// Returns the reason why data was lost, if any was.
fn loss(server: &Server) -> Option<String> {
    if server.is_broken() {
        Some("changes that were not durable at the fault are lost".to_owned())
    } else if server.has_lost() {
        Some("some data that programs had written is lost; the log has the errors".to_owned())
    } else {
        None
    }
}

/// Returns the functions that the FUSE server calls.
fn callbacks(volume: &Volume, closed: &Closed) -> Callbacks {
    let last = volume.clone();
    let closing = Arc::clone(closed);
    Callbacks {
        destroy: Box::new(move |server: &Server| {
            server.forget_all();
            closing.get_or_init(|| close(&last));
        }),
        log: Box::new(|message: &str| warn!("{message}")),
    }
}

/// Returns the settings that `stats` shows and a remount is compared with.
fn setting(lists: &[Words], options: &Options, volume: &Volume) -> Setting {
    let journaling = Journaling::chosen(volume, options.ext4.data, options.ext4.commit_interval);
    Setting {
        options: words(lists, options, volume),
        journaling: journaling.filter(|_| !options.ext4.ignore_journal),
    }
}

/// Returns the options as words. It adds the volume's own error policy where they name none.
fn words(lists: &[Words], options: &Options, volume: &Volume) -> String {
    let usual = volume.ext4().superblock().error_policy();
    match options::errors_name(usual).filter(|_| options.ext4.errors.is_none()) {
        Some(errors) => format!("errors={errors},{}", options::text(lists)),
        None => options::text(lists),
    }
}
