//! Gives the shared library the name under which connectors load it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmodsecurity.so.3");
}
