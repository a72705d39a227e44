//! Nothing is built: without a build script, cargo leaves the features of build dependencies out.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
