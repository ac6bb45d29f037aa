// Package late registers gRPC services before a server has them (Services). gRPC needs all services
// before it serves. A server answers at once, and opens its part of the coordination store later.
// Each call goes to the server's own service if that is ready, or else to a substitute, which
// forwards the call to another server. Begin and End switch between the two without a lock: a call
// that has begun ends where it began.
package late
