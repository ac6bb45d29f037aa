// Package releasemark has one server's knowledge of the cluster's level (package rpc/release): the
// levels that it has recorded on its disk, and the active level, by which the server's parts use
// new formats and messages.
//
// A Mark learns from the answers of the core's leader to heartbeats and announcements, and reports
// with the next ones which levels it has recorded. It writes on its own goroutine: a slow disk
// delays the upgrade, but not the heartbeats.
//
// INVARIANT: a level is recorded on disk as noted before the server reports it as noted. It is
// recorded as active before a gate of the level opens on this server.
//
// A server whose directory has recorded a level that its program does not support does not start
// (Check): the directory may have formats that the program does not know, or the server may be sent
// such formats.
package releasemark
