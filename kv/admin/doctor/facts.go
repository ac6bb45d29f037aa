package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

const (
	// parallelServers bounds the servers that are examined at a time.
	parallelServers = 8
	// secondLooks is the number of times that Gather looks again for problems that are usually
	// temporary. secondLookWait is the pause before each look.
	secondLooks    = 4
	secondLookWait = time.Second
)

// Server is a server of the cluster, with its examination or the error of it.
type Server struct {
	Address string
	admin.Examination
	Err error
}

// Facts are the facts that Gather found. A list that could not be read is nil, and its error is in
// Errs under the name of the list.
type Facts struct {
	Now     time.Time
	Status  admin.Status
	Servers []Server
	// Nodes are the nodes that are not decommissioned.
	Nodes      []admin.NodeInfo
	Partitions []admin.PartitionInfo
	Keyspaces  []admin.KeyspaceInfo
	Operators  []admin.OperatorInfo
	Core       admin.Core
	Placement  admin.PlacementSettings
	Upgrade    admin.Upgrade
	Backups    []admin.BackupInfo
	Schedules  []admin.BackupScheduleInfo
	Errs       map[string]error
}

// Gather asks the cluster and its servers. Missing answers of a server or the core are recorded in
// the facts. Gather returns an error if no server answers, or if the user may not have servers
// examined.
func Gather(ctx context.Context, c *admin.Client) (*Facts, error) {
	f := &Facts{Now: time.Now(), Errs: map[string]error{}}
	var err error
	if f.Status, err = c.Status(ctx); err != nil {
		return nil, err
	}
	f.look(ctx, c)
	f.Keyspaces, err = c.Keyspaces(ctx)
	f.had("keyspaces", err)
	f.Operators, err = c.Operators(ctx)
	f.had("operators", err)
	f.Placement, err = c.Placement(ctx)
	f.had("placement", err)
	f.Upgrade, err = c.Upgrade(ctx)
	f.had("upgrade", err)
	f.Backups, err = c.Backups(ctx)
	f.had("backups", err)
	f.Schedules, err = c.BackupSchedules(ctx)
	f.had("schedules", err)
	f.examine(ctx, c)
	if err := f.refusal(); err != nil {
		return nil, fmt.Errorf("servers are examined only for a user with the role root: %w", err)
	}
	return f, nil
}

// had records whether a list could be read.
func (f *Facts) had(name string, err error) {
	if delete(f.Errs, name); err != nil {
		f.Errs[name] = err
	}
}

// look reads the lists for health.Judge. It reads them again while there are problems that are
// usually temporary: the core learns of a new leader within some seconds.
func (f *Facts) look(ctx context.Context, c *admin.Client) {
	for look := 0; ; look++ {
		var err error
		f.Nodes, err = c.Nodes(ctx)
		f.had("nodes", err)
		f.Nodes = slices.DeleteFunc(f.Nodes, func(n admin.NodeInfo) bool {
			return n.Status == admin.NodeGone
		})
		f.Core, err = c.CoreHealth(ctx)
		f.had("core", err)
		f.Partitions, err = c.Partitions(ctx, "")
		f.had("partitions", err)
		if _, again := health.Judge(f.Nodes, f.Partitions, f.Core); !again || len(f.Errs) > 0 ||
			look == secondLooks {
			return
		}
		select {
		case <-time.After(secondLookWait):
		case <-ctx.Done():
			return
		}
	}
}

// addresses lists the known servers.
func (f *Facts) addresses() []string {
	all := map[string]bool{}
	for _, m := range f.Status.Members {
		all[m.Address] = true
	}
	for _, m := range f.Core.Members {
		all[m.Address] = true
	}
	for _, n := range f.Nodes {
		all[n.Address] = true
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}

// refusal returns the error of an examination that was refused to the user, or nil.
func (f *Facts) refusal() error {
	for _, s := range f.Servers {
		if errors.Is(s.Err, kv.ErrPermissionDenied) || errors.Is(s.Err, kv.ErrUnauthenticated) {
			return s.Err
		}
	}
	return nil
}

// examine examines all servers.
func (f *Facts) examine(ctx context.Context, c *admin.Client) {
	addresses := f.addresses()
	f.Servers = make([]Server, len(addresses))
	slots := make(chan struct{}, parallelServers)
	var wait sync.WaitGroup
	for i, address := range addresses {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			x, err := c.Examine(ctx, address, addresses)
			f.Servers[i] = Server{Address: address, Examination: x, Err: err}
		})
	}
	wait.Wait()
}
