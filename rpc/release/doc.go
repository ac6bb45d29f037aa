// Package release defines the level of a cluster, which says which release's formats and messages
// its servers may use. A new format is used only when every server has it and an administrator, or
// a timer, has finalised the upgrade; before that, every server can go back to the program that it
// ran.
//
// # Levels
//
// A release that adds a format, or a message that earlier servers do not understand, has a level of
// its own: the level before it, plus one. A program supports two levels (Supported): that of its
// release, and the one before. A cluster is at one level, its active level, which never falls.
// Servers take part only if their programs support that level. So servers of two consecutive
// releases work together, and those of two releases that are further apart do not.
//
// Levels say what may be written. Whatever the level, a program reads everything that earlier
// releases have written.
//
// # Gates
//
// A Gate names one new format or message and the level that opens it. Code that can write something
// in an old and in a new way asks Active.Allows with the gate, each time. The registry (gates.go)
// has every gate, so that `tidemark upgrade status` can list what finalising opens.
//
// INVARIANT: a server allows a gate only after every server that takes part has noted the gate's
// level on its disk, and a server does not start with a program that does not support the level
// that it has noted. So no program ever meets a format that it does not know.
//
// Package placement/server/upgrade has the record of the active level and raises it;
// deploy/embedded/releasemark has a server's copy on disk. docs/upgrades.md has the whole.
//
// The package is pure: it imports the standard library only.
package release
