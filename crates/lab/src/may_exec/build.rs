//! Paths that a build asks for.

use crate::random::Random;
use crate::volume::File;

const SOURCES: u64 = 60;
/// Headers that a source includes.
const INCLUDES: usize = 25;
/// Headers of the project, and directories of the system's with so many each.
const OWN: u64 = 40;
const FOLDERS: u64 = 12;
const HEADERS: u64 = 40;

const PROJECT: &str = "/home/user/project";

/// What is on the volume: a project in a home directory that is closed to others, and the headers of a system.
pub(super) fn files() -> Vec<File> {
    let own = |path: &str, mode| File { uid: 1000, mode, ..File::directory(path) };
    let mut files = vec![File::directory("/home"), own("/home/user", 0o700), own(PROJECT, 0o755)];
    files.extend(["src", "include", "obj"].map(|name| own(&format!("{PROJECT}/{name}"), 0o755)));
    for dir in ["/usr", "/usr/include", "/usr/local", "/usr/local/include"] {
        files.push(File::directory(dir));
    }
    files.extend((0..FOLDERS).map(|folder| File::directory(format!("/usr/include/folder{folder}"))));
    for (folder, header) in (0..FOLDERS).flat_map(|folder| (0..HEADERS).map(move |header| (folder, header))) {
        files.push(File::regular(format!("/usr/include/{}", system_header(folder, header))));
    }
    files.extend((0..OWN).map(|n| File::regular(format!("{PROJECT}/include/own{n}.h"))));
    for source in 0..SOURCES {
        files.push(File::regular(format!("{PROJECT}/src/{source}.c")));
        files.push(File::regular(format!("{PROJECT}/obj/{source}.o")));
    }
    files
}

fn system_header(folder: u64, header: u64) -> String {
    format!("folder{folder}/header{header}.h")
}

/// By which paths the compiler asks, one source after the other.
pub(super) fn paths() -> Vec<String> {
    let (mut paths, mut random) = (Vec::new(), Random::new(1));
    for source in 0..SOURCES {
        paths.push(format!("{PROJECT}/src/{source}.c"));
        for _ in 0..INCLUDES {
            if random.below(10) == 0 {
                paths.push(format!("{PROJECT}/include/own{}.h", random.below(OWN)));
                continue;
            }
            let header = system_header(random.below(FOLDERS), random.below(HEADERS));
            let places = [&format!("{PROJECT}/include"), "/usr/local/include", "/usr/include"];
            paths.extend(places.map(|place| format!("{place}/{header}")));
        }
        paths.extend(["o", "d"].map(|what| format!("{PROJECT}/obj/{source}.{what}")));
    }
    paths
}
