//! Serves a mount, from the first request to the end of the volume.
//!
//! The command calls [`Mount::serve`]. When it returns, the volume is closed and every change is on
//! it, or the failure is reported.

use std::process;
use std::sync::{Arc, OnceLock};

use extern4::block::os_reason;
use extern4::{PressureWatch, Volume};
use extern4_fuse::{Callbacks, Server};
use tracing::{debug, info, warn};

use crate::control::{Control, Journaling, Setting};
use crate::error::{Error, Notice, Observer};
use crate::host::Host;
use crate::mount::Mount;
use crate::options::{self, Options, Words};
use crate::request::Request;
use crate::{daemon, open, service};

/// The result of closing the volume, once it is closed. The kernel's last request closes it;
/// without that request, the end of [`Mount::serve`] does.
type Closed = Arc<OnceLock<Result<(), Error>>>;

impl Mount {
    /// Serves the mount until it ends, and closes the volume. The observer gets the failures.
    pub fn serve(self, host: Host, observer: &mut dyn Observer) {
        let Self {
            request:
                Request {
                    source,
                    lists,
                    options,
                    ..
                },
            volume,
            dir,
            device,
            mount,
            mounted,
            ending,
        } = self;
        let closed = Closed::default();
        let setting = setting(&lists, &options, &volume);
        let budget = Arc::clone(&options.ext4.budget);
        let callbacks = callbacks(&volume, &closed);
        let server = Arc::new(Server::new(volume.namespace(), options.server, callbacks));
        let mounted = mounted.get_or_init(|| mount);
        let mut control = None;
        let mut is_ready = false;
        let mut pressure = None;
        let ready = || {
            control = Control::start(
                &host.dir,
                &server,
                &volume,
                &source,
                setting,
                host.metrics,
                |error| observer.notice(&Notice::NoControl(error)),
            );
            info!(
                "{source} is mounted on {dir}; requests come through {}",
                server.transport().name()
            );
            // In the background, the service manager started another process than this one.
            service::tell(&format!(
                "READY=1\nMAINPID={}\nSTATUS={source} on {dir}",
                process::id()
            ));
            if host.detach {
                daemon::detach(&host.nowhere);
            }
            // Without reports, the budget alone bounds the caches.
            pressure = PressureWatch::start(&budget)
                .inspect_err(|error| debug!("no reports of memory pressure: {}", os_reason(error)))
                .ok();
            is_ready = true;
        };
        let served = extern4_fuse::serve(&server, device, ready);
        // Serving ends before the last step of a forced unmount: this waits for that step.
        drop(ending.lock());
        service::tell("STOPPING=1");
        drop(pressure);
        let waiting = control.map(Control::end);
        if is_ready {
            observer.was_served();
        }
        let failed = served.is_err();
        if let Err(error) = served {
            observer.failed(&Error::Serve {
                dir: dir.clone(),
                error,
            });
        }
        open::say_ending();
        server.forget_all();
        let mut lost = loss(&server).map(str::to_owned);
        if let Some(why) = loss(&server) {
            observer.failed(&Error::Lost(why));
        }
        log_operations(&server);
        drop(server);
        if failed {
            // The server's end of the device is closed: otherwise the kernel would wait for an
            // answer.
            mounted.clear();
        }
        if let Err(error) = closed.get_or_init(|| close(&volume)) {
            observer.failed(error);
            if !volume.ext4().is_aborted() {
                lost.get_or_insert_with(|| error.to_string());
            }
        }
        if let Some(waiting) = waiting {
            waiting.tell(lost.as_deref());
        }
        if is_ready {
            info!("{source} is no longer mounted on {dir}");
        }
    }
}

/// Returns the reason why data was lost, if any was.
fn loss(server: &Server) -> Option<&'static str> {
    if server.is_broken() {
        Some("changes that were not durable at the fault are lost")
    } else if server.has_lost() {
        Some("some data that programs had written is lost; the log has the errors")
    } else {
        None
    }
}

/// Logs how often the kernel asked for each kind of operation.
fn log_operations(server: &Server) {
    let counted =
        |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    for operation in server.operations() {
        debug!(
            "{}: {}, {}",
            operation.name,
            counted(operation.times.count(), "time"),
            counted(operation.errors, "error")
        );
    }
}

/// Writes the remaining changes, and closes the volume.
fn close(volume: &Volume) -> Result<(), Error> {
    volume.clone().close().map_err(Error::Close)
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
