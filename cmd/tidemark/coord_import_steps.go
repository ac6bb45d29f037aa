package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"google.golang.org/grpc"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

type callOption = grpc.CallOption

// importing is one run of the verb.
type importing struct {
	*app
	file   *etcdfile.File
	client coordpb.ImportClient
	shown  *progress.Progress
	// state is the server's last answer; began: an import of this file is under way.
	state *coordpb.ImportState
	began bool
	steps *etcdfile.Steps
	// users: users and roles are imported too.
	users bool
	// bump is the number by which the revision is raised; bumpGiven: the user chose it.
	bump      uint64
	bumpGiven bool
}

// check refuses a file that cannot be imported completely, before anything is imported.
func (i *importing) check() error {
	most := uint64(etcdfile.MostRevision)
	if i.bump > 0 && (i.bump > most || i.file.Revision > most-i.bump) {
		return exit.Usagef("--bump-revision %d: the snapshot is at revision %d, and an import goes on "+
			"at revision %d at the highest, so that as many are left for what is written after it",
			i.bump, i.file.Revision, most)
	}
	for n := range i.file.Len() {
		if i.file.Size(n) <= embedded.MostRequestBytes {
			continue
		}
		k, err := i.file.Key(n)
		if err != nil {
			return err
		}
		return fmt.Errorf("key %q has %d bytes with its value, the limit is %d: delete it from the "+
			"etcd that the snapshot is of", k.KV.Key, i.file.Size(n), embedded.MostRequestBytes)
	}
	return nil
}

// begin finds out whether an import of the file is under way and should be continued.
func (i *importing) begin(ctx context.Context) (err error) {
	if i.state, err = ask(ctx, i.app, i.client.State, &coordpb.ImportStateRequest{}); err != nil {
		return err
	}
	if i.state.Phase != coordpb.ImportState_UNDER_WAY {
		i.steps, i.state = i.file.Steps(newImportID()), &coordpb.ImportState{}
		i.steps.Revision = i.file.Revision + i.bump
		if !i.bumpGiven {
			i.steps.Revision = etcdfile.Raised(i.file.Revision, time.Now())
		}
		i.steps.EnableAuth = i.users && i.file.Auth
		if !i.users {
			return nil
		}
		if _, err := ask(ctx, i.app, i.client.Auth, i.file.ImportedAuth()); err != nil {
			return fmt.Errorf("users and roles: %w (--skip-users leaves them out)", err)
		}
		return nil
	}
	if !bytes.Equal(i.state.Source, i.file.Sum[:]) {
		return &exit.Error{Code: exit.Conflict, Err: fmt.Errorf("the import of another file is under "+
			"way, with %d keys so far: go on with it, or give it up with --abandon", i.state.Keys)}
	}
	raised := i.state.Revision - i.file.Revision
	if i.bumpGiven && raised != i.bump {
		return &exit.Error{Code: exit.Conflict, Err: fmt.Errorf("the import that is under way goes on "+
			"at revision %d: go on with it with --bump-revision %d, or give it up with --abandon",
			i.state.Revision, raised)}
	}
	i.steps, i.began = i.file.Steps(i.state.Id), true
	i.steps.Revision = i.state.Revision
	i.steps.EnableAuth = i.users && i.file.Auth
	i.say("going on with the import of this file, of which %d keys are there", i.state.Keys)
	return nil
}

// run executes steps until the last one is done. A server's answer says which step is next.
func (i *importing) run(ctx context.Context) error {
	for {
		step, err := i.steps.Next(i.state)
		if err != nil {
			return err
		}
		state, err := ask(ctx, i.app, i.client.Step, step)
		if err != nil {
			return err
		}
		if state.Id != step.Id || state.Step < step.Step {
			return errors.New("the import was given up by another command")
		}
		i.state, i.began = state, true
		i.shown.Set(state.Keys)
		if state.Phase == coordpb.ImportState_DONE {
			return nil
		}
	}
}

// report prints what was imported and what was left out.
func (i *importing) report() error {
	users, roles := len(i.file.Users), len(i.file.Roles)
	switch {
	case i.users:
		i.say("%d users and %d roles are imported", users, roles)
	case users+roles > 0:
		i.say("%d users and %d roles of the file are left out", users, roles)
	}
	switch {
	case i.steps.EnableAuth:
		i.say("clients are authenticated from now on, as in the etcd of the file")
	case i.file.Auth:
		i.say("the etcd of the file authenticates its clients, and this service does not yet")
	}
	if raised := i.steps.Revision - i.file.Revision; raised > 0 {
		i.say("the snapshot is at revision %d, and the service goes on %d above: clients that ask for "+
			"earlier revisions are told that they were compacted", i.file.Revision, raised)
	}
	granted := 0
	for _, role := range i.file.Roles {
		granted += len(role.Keyspaces)
	}
	if granted > 0 && i.users {
		i.say("%d rights of roles for keyspaces are left out: grant them again with `tidemark auth "+
			"role grant --keyspace`", granted)
	}
	if i.steps.WithoutLease > 0 {
		i.say("%d keys have a lease that is not in the file, and have none now", i.steps.WithoutLease)
	}
	list := i.list(output.Column{Name: "revision", Number: true},
		output.Column{Name: "keys", Number: true}, output.Column{Name: "leases", Number: true},
		output.Column{Name: "elapsed"})
	list.Row(i.steps.Revision, i.state.Keys, i.state.Leases, i.shown.Elapsed())
	return list.Flush()
}
