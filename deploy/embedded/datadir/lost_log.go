package datadir

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// MustHaveLogs refuses a directory in which a log is missing that existed before: its volume is not
// mounted, or its disk was replaced. Opening the directory would create an empty log, and a replica
// without its votes and entries would vote again as the same replica. Together with other replicas
// that were down, it could form a majority without any acknowledged entry. The check comes before
// anything is written, and before any client learns that the server exists.
//
// A missing state is different: either the log has all entries of the state, or its replicas do not
// open (raftlog.Log.OpenGroup).
func (d *Directory) MustHaveLogs(roles []string) error {
	for _, part := range []string{Core, Node} {
		if !slices.Contains(roles, part) || !d.Promised(part) || d.HasDatabase(part, "log") {
			continue
		}
		next := withoutPart(part, slices.Contains(roles, Core), slices.Contains(roles, Node))
		return fmt.Errorf("%w: there is no database in %s: the log of acknowledged writes is "+
			"missing, and a server that has forgotten what it promised must not take "+
			"part; mount the volume that holds it, and start again; if it is lost for good, %s",
			ErrUnusable, d.Sub(part, "log"), next)
	}
	return nil
}

// withoutPart says what to do when the databases of a part are lost: core and node are the roles of
// the server.
func withoutPart(part string, core, node bool) string {
	switch {
	case part == Core:
		next := "start a server with an empty directory and --roles core, and have it take this " +
			"member's place: `tidemark core replace`; the core goes on while a majority of its " +
			"members is left"
		if node {
			next += "; with --roles node this server goes on as a data node meanwhile"
		}
		return next
	case core:
		return "start with --roles core: the server goes on as a member of the core, without its node"
	}
	return "put the directory aside and start with an empty one: the server joins as a new node, and " +
		"the core moves replicas to it"
}

// Promised reports whether a part may have made promises with its log. For a member of the core
// whose directory was created by an earlier version, an existing state proves it as well, because
// the state was always created after the log.
func (d *Directory) Promised(part string) bool {
	id := d.Identity()
	return part == Node && id.Node != 0 || part == Core && id.Core ||
		d.HasDatabase(part, "state")
}

// HasDatabase reports whether a database was created below the directory. If that cannot be
// determined, it returns true: opening the database then reports the error.
func (d *Directory) HasDatabase(part, name string) bool {
	found, err := pebble.Peek(d.Sub(part, name), d.FS)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return found.Exists
}
