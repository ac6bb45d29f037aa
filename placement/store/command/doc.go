// Package command says what may be in the log of the core's store: how commands are encoded and
// which are refused before they are proposed, what a record of members may become, and with which
// errors commands end.
//
// The package has no state, and reads none: what it says of a command is the same at every member
// and at any time. An entry of the log has one command, or several, each with its format in front
// (entry.go). The format says which members know the command, so that a member which does not know
// it stops, rather than doing something else than the others.
//
// Everything here is safe on bytes from elsewhere: a command that is malformed, nested too deep or
// of a later version is an error.
package command
