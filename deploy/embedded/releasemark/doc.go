// Package releasemark has what one server knows of the cluster's level (package rpc/release): what
// it has noted on its disk, and the active level, by which the server's parts use new formats and
// messages.
//
// A Mark learns from the answers of the core's leader, to heartbeats and announcements, and says
// what it has noted with the next ones. It writes on a goroutine of its own: a slow disk delays the
// upgrade, and not the heartbeats.
//
// INVARIANT: a level is on disk as noted before the server reports it as noted, and as active
// before a gate of the level opens here.
//
// A server whose directory has noted a level that its program does not support does not start
// (Check): the directory may have, or may be sent, formats that the program does not know.
package releasemark
