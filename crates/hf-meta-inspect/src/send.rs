//! The thread safety of futures, which depends on the target.

/// The boxed future of a step. It is `Send`, so that calls can be spawned, except in WebAssembly: a promise stays on the
/// thread that created it.
#[cfg(not(target_family = "wasm"))]
pub type BoxFuture<'a, T> = futures::future::BoxFuture<'a, T>;

/// The boxed future of a step.
#[cfg(target_family = "wasm")]
pub type BoxFuture<'a, T> = futures::future::LocalBoxFuture<'a, T>;

/// `Send` and `Sync`, except in WebAssembly. Every type that may implement it does.
#[cfg(not(target_family = "wasm"))]
pub trait MaybeSend: Send + Sync {}

#[cfg(not(target_family = "wasm"))]
impl<T: Send + Sync + ?Sized> MaybeSend for T {}

/// `Send` and `Sync`, except in WebAssembly. Every type that may implement it does.
#[cfg(target_family = "wasm")]
pub trait MaybeSend {}

#[cfg(target_family = "wasm")]
impl<T: ?Sized> MaybeSend for T {}
