//! Both listeners as clients meet them.

mod grpc;
mod http;
mod malformed;
mod reflection;
