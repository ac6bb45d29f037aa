// Package offline works on the data directories of servers that do not run: it surveys and recovers
// nodes and members of the core after the loss of a majority. It opens a directory as a server
// does, so it never works beside one.
package offline
