// Package offline works on the data directories of stopped servers: it surveys and recovers nodes
// and members of the core after the loss of a majority. It opens a directory as a server does, so
// it never works while a server uses the directory.
package offline
