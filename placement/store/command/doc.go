// Package command defines what may be in the log of the core's store: how commands are encoded,
// which are refused before they are proposed, how a record of members may change, and the errors of
// commands.
//
// The package has no state, and reads none: its results are the same at every member and at any
// time. An entry of the log has one command, or several, each after its format (entry.go). The
// format says which members know the command, so that a member which does not know it stops,
// instead of doing something else than the others.
//
// Everything here is safe on bytes from elsewhere: a command that is malformed, nested too deep or
// of a later version is an error.
package command
