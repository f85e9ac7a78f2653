//! Names the shared library, so that programs are bound to its version of the interface.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcarole.so.0");
        // Its threads may outlive the last handle by a moment: dlclose must not unmap their code.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
