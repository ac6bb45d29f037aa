// Package command defines the commands in the log of the core's store: their encoding, their checks
// before the proposal, the allowed changes of the members, and their errors.
//
// The package has no state, and reads none: its results are the same at every member and at any
// time. An entry of the log has one command, or several, each after its format (entry.go). The
// format determines which members know the command. A member that does not know a format stops,
// instead of doing something else than the others.
//
// All functions are safe for untrusted bytes: a command that is malformed, nested too deep or of a
// later version is an error.
package command
