//! A device that does not answer: only callers that need the bytes it withholds wait.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use extern4::Volume;
use extern4_block::{BlockDevice, DeviceWrapper, FileDevice, Op, Result};
use extern4_testkit::image::ImageSpec;

const SPEC: ImageSpec = ImageSpec::new(
    "blocked",
    32 << 20,
    &["-t", "ext4", "-b", "4096", "-N", "4096"],
);

/// Enough that several share each lock, if a cache had 256 locks chosen by hash.
const FILES: usize = 3000;

/// Blocks of an inode table that are read together.
const WINDOW: u64 = 32;

/// A device that keeps reads of one byte waiting until it is opened.
#[derive(Debug)]
struct Gate {
    base: Arc<dyn BlockDevice>,
    byte: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    waiting: usize,
    /// A read has waited until the test would hang.
    is_stuck: bool,
}

impl Gate {
    fn new(base: Arc<dyn BlockDevice>, byte: u64) -> Arc<Self> {
        Arc::new(Self {
            base,
            byte,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn wait_for_reader(&self) {
        let state = self.state.lock().unwrap();
        drop(
            self.changed
                .wait_while(state, |state| state.waiting == 0)
                .unwrap(),
        );
    }

    fn open(&self) {
        let mut state = self.state.lock().unwrap();
        assert!(
            !state.is_stuck,
            "a caller that needs other bytes has waited for these"
        );
        state.open = true;
        self.changed.notify_all();
    }
}

impl DeviceWrapper for Gate {
    type Inner = dyn BlockDevice;

    fn inner(&self) -> &Self::Inner {
        &*self.base
    }

    fn before_request(&self, op: Op, range: Range<u64>) -> Result<()> {
        if op == Op::Read && range.contains(&self.byte) {
            let mut state = self.state.lock().unwrap();
            state.waiting += 1;
            self.changed.notify_all();
            let closed = |state: &mut State| !state.open;
            let (mut state, waited) = self
                .changed
                .wait_timeout_while(state, Duration::from_secs(60), closed)
                .unwrap();
            state.is_stuck |= waited.timed_out();
        }
        Ok(())
    }
}

#[test]
fn an_inode_that_the_device_withholds_keeps_no_other_waiting() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let names: Vec<PathBuf> = (0..FILES).map(|n| format!("/file-{n}").into()).collect();
    let volume = Volume::options().write(true).open(&image.path).unwrap();
    let session = volume.superuser();
    for name in &names {
        session.create(name).unwrap();
    }
    let block_of = |name: &PathBuf| {
        let ino = u32::try_from(session.symlink_metadata(name).unwrap().ino()).unwrap();
        volume.ext4().inode_position(ino).unwrap().block
    };
    let blocks: Vec<u64> = names.iter().map(block_of).collect();
    drop((session, volume));

    let withheld = FILES / 2;
    let gate = Gate::new(
        Arc::new(FileDevice::open(&image.path).unwrap()),
        blocks[withheld] * 4096,
    );
    let volume = Volume::options().open_device(gate.clone()).unwrap();
    let session = volume.superuser();
    thread::scope(|scope| {
        let stat = || session.symlink_metadata(&names[withheld]).unwrap().ino();
        let first = scope.spawn(stat);
        let second = scope.spawn(stat);
        gate.wait_for_reader();
        let mut seen = 0;
        for (name, block) in names.iter().zip(&blocks) {
            if block / WINDOW != blocks[withheld] / WINDOW {
                session.symlink_metadata(name).unwrap();
                seen += 1;
            }
        }
        assert!(seen > FILES / 2, "{seen}");
        gate.open();
        assert_eq!(first.join().unwrap(), second.join().unwrap());
    });
    // It was read once, for both.
    assert_eq!(gate.state.lock().unwrap().waiting, 1);
}
