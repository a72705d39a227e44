//! Permission checks: the library's answers are the kernel's.

use extern4::{Access, Caps, Cred, Volume};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::perm::{self, Caller, Object};

use crate::ours::{self, as_path};

const SPEC: ImageSpec = ImageSpec::new(
    "permissions",
    48 << 20,
    &["-t", "ext4", "-b", "1024", "-N", "20000"],
)
.mounted(perm::PLANS);

/// Compares the answers for one share of the callers; the shares run in parallel.
fn compare(share: usize, of: usize) {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let objects = perm::objects(&ours::tree(&image.path));
    let mount = image.mount("ro,noatime");
    let mut wrong = Vec::new();
    for caller in perm::callers().into_iter().skip(share).step_by(of) {
        let objects: Vec<_> = objects
            .iter()
            .step_by(if caller.sample { 23 } else { 1 })
            .cloned()
            .collect();
        let theirs = perm::ask(&mount.path, &caller, &objects);
        let ours = ask(&image, &caller, &objects);
        for ((object, our), their) in objects.iter().zip(ours).zip(theirs) {
            if our != their {
                wrong.push(format!(
                    "{} {}: ours {our:?}, kernel {their:?}",
                    caller.name,
                    object.path.escape_ascii()
                ));
            }
        }
    }
    let shown = wrong
        .iter()
        .take(20)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\n  ");
    assert!(
        wrong.is_empty(),
        "{} answers differ; by mask of read 4, write 2, execute 1:\n  {shown}",
        wrong.len()
    );
}

/// Returns the library's answers, in the form of [`perm::ask`].
fn ask(image: &Image, caller: &Caller, objects: &[Object]) -> Vec<[i32; 8]> {
    let volume = Volume::open(&image.path).unwrap_or_else(|e| panic!("{e}"));
    let cred = Cred::new(caller.uid, caller.gid, &caller.groups)
        .with_caps(Caps::from_bits_retain(caller.caps));
    let session = volume.session(cred);
    let answer = |object: &Object| {
        let path = as_path(&object.path);
        std::array::from_fn(|mask| {
            let wanted = Access::from_bits_retain(mask as u8);
            session
                .access(path, wanted)
                .map_or_else(|e| i32::from(e.errno().raw()), |()| 0)
        })
    };
    objects.iter().map(answer).collect()
}

#[test]
fn every_mode_list_and_caller_gets_the_kernels_answer_1_of_2() {
    compare(0, 2);
}

#[test]
fn every_mode_list_and_caller_gets_the_kernels_answer_2_of_2() {
    compare(1, 2);
}
