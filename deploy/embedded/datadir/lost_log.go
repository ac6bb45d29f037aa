package datadir

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// MustHaveLogs refuses a directory from which a log has gone that was there: its volume is not
// mounted, or its disk was replaced. Opening it would make an empty one, and a replica without its
// votes and entries would vote again as the one that it was: with others that were down, a majority
// that has never heard of what was acknowledged. It is asked before anything is written, and before
// any client hears that the server is there.
//
// A state that is gone is another matter: the log has all that it had, or its replicas do not open
// (raftlog.Log.OpenGroup).
func (d *Directory) MustHaveLogs(roles []string) error {
	for _, part := range []string{Core, Node} {
		if !slices.Contains(roles, part) || !d.Promised(part) || d.HasDatabase(part, "log") {
			continue
		}
		next := "put the directory aside and start with an empty one: the server joins as a new " +
			"node, and serves keyspaces that are created from then on"
		switch {
		case part == Core:
			next = "start a server with an empty directory and --roles core, and have it take this " +
				"member's place: `tidemark core replace`; the core goes on while a majority of its " +
				"members is left"
			if slices.Contains(roles, Node) {
				next += "; with --roles node this server goes on as a data node meanwhile"
			}
		case slices.Contains(roles, Core):
			next = "start with --roles core: the server goes on as a member of the core, without " +
				"its node"
		}
		return fmt.Errorf("%w: there is no database in %s: the log of acknowledged writes is "+
			"missing, and a server that has forgotten what it promised must not take "+
			"part; mount the volume that holds it, and start again; if it is lost for good, %s",
			ErrUnusable, d.Sub(part, "log"), next)
	}
	return nil
}

// Promised says whether a part may have promised something with its log. A state proves it as well,
// for a member of the core whose directory an earlier version has made: it was always made after
// the log.
func (d *Directory) Promised(part string) bool {
	id := d.Identity()
	return part == Node && id.Node != 0 || part == Core && id.Core ||
		d.HasDatabase(part, "state")
}

// HasDatabase says whether a database was made below the directory. One that cannot be looked at
// counts: opening it tells what is wrong.
func (d *Directory) HasDatabase(part, name string) bool {
	found, err := pebble.Peek(d.Sub(part, name), d.FS)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return found.Exists
}
