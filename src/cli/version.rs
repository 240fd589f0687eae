//! What this binary is.

/// The version, and what it was built from and for.
pub(super) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("TIDEGATE_COMMIT"),
    "\ntarget: ",
    env!("TIDEGATE_TARGET"),
    "\nbuilt with: ",
    env!("TIDEGATE_RUSTC"),
    ", profile ",
    env!("TIDEGATE_PROFILE"),
);
