package reference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// Options configure a cluster. The zero value is one member with etcd's defaults.
type Options struct {
	// Members is the number of members; 0 means 1.
	Members int
	// Args are added to the command line of every member, such as --unsafe-no-fsync.
	Args []string
	// Dir has the data and logs of the members; empty: a new temporary directory, which Close
	// removes.
	Dir string
	// Cache is the directory of the built programs, as for Install.
	Cache string
	// Timeout bounds the time for which Start and Restart wait for an answer; 0 means a minute. It
	// does not bound the time of the build.
	Timeout time.Duration
}

// Cluster is a running etcd. Its methods may be called from any goroutine, but calls that kill and
// start the same member must not run at the same time.
type Cluster struct {
	// Programs are the programs that the cluster runs.
	Programs Programs

	options   Options
	temporary bool
	clients   []string
	peers     []string
	members   []*process.Process
}

// Start starts a cluster, and returns when all its members answer. The caller must close it.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	programs, err := Install(ctx, o.Cache)
	if err != nil {
		return nil, err
	}
	if o.Members == 0 {
		o.Members = 1
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	c := &Cluster{Programs: programs, options: o, members: make([]*process.Process, o.Members)}
	if o.Dir == "" {
		if c.options.Dir, err = os.MkdirTemp("", "etcd-"); err != nil {
			return nil, fmt.Errorf("directory for etcd: %w", err)
		}
		c.temporary = true
	}
	if err := c.startAll(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) startAll(ctx context.Context) error {
	addresses, err := process.FreeAddresses(2 * c.options.Members)
	if err != nil {
		return err
	}
	c.clients, c.peers = addresses[:c.options.Members], addresses[c.options.Members:]
	for i := range c.members {
		if err := c.start(i); err != nil {
			return err
		}
	}
	for i := range c.members {
		if err := c.wait(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func name(member int) string { return fmt.Sprintf("m%d", member+1) }

// start starts a member with the data in its directory.
func (c *Cluster) start(i int) error {
	var initial []string
	for j, peer := range c.peers {
		initial = append(initial, name(j)+"=http://"+peer)
	}
	args := []string{
		"--name", name(i),
		"--data-dir", filepath.Join(c.options.Dir, name(i)),
		"--listen-client-urls", "http://" + c.clients[i],
		"--advertise-client-urls", "http://" + c.clients[i],
		"--listen-peer-urls", "http://" + c.peers[i],
		"--initial-advertise-peer-urls", "http://" + c.peers[i],
		"--initial-cluster", strings.Join(initial, ","),
		"--initial-cluster-token", "reference",
		"--initial-cluster-state", "new",
		"--log-level", "warn",
	}
	member, err := process.Start(process.Config{
		Name: "etcd " + name(i), Path: c.Programs.Etcd, Args: append(args, c.options.Args...),
		Log: c.LogPath(i),
	})
	if err != nil {
		return err
	}
	c.members[i] = member
	return nil
}

// wait waits until a member answers a linearizable read.
func (c *Cluster) wait(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	return process.Until(ctx, "etcd "+name(i)+" answers", 20*time.Millisecond,
		func(ctx context.Context) error {
			_, err := c.ask(ctx, i, http.MethodGet, "/health")
			return err
		}, c.members[i])
}

// ask sends a request without parameters to a member's HTTP server.
func (c *Cluster) ask(ctx context.Context, i int, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.clients[i]+path,
		strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s: %s", path, response.Status, body), err)
	}
	return body, nil
}

// Leader waits until a member says that it leads, and returns its number, counted from 0.
func (c *Cluster) Leader(ctx context.Context) (leader int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	err = process.Until(ctx, "etcd has a leader", 20*time.Millisecond,
		func(ctx context.Context) error {
			var errs []error
			for i := range c.members {
				body, err := c.ask(ctx, i, http.MethodPost, "/v3/maintenance/status")
				var status struct {
					Header struct {
						Member string `json:"member_id"`
					}
					Leader string
				}
				if err == nil {
					err = json.Unmarshal(body, &status)
				}
				if err == nil && status.Leader != "" && status.Leader == status.Header.Member {
					leader = i
					return nil
				}
				if err == nil {
					err = fmt.Errorf("it does not lead: %s", body)
				}
				errs = append(errs, fmt.Errorf("%s: %w", name(i), err))
			}
			return errors.Join(errs...)
		})
	return leader, err
}

// Endpoints returns the addresses of the members for clients, host:port.
func (c *Cluster) Endpoints() []string { return append([]string(nil), c.clients...) }

// Member returns the process of a member, counted from 0, to pause it or to read its memory usage.
func (c *Cluster) Member(i int) *process.Process { return c.members[i] }

// LogPath returns the path of a member's log.
func (c *Cluster) LogPath(i int) string { return filepath.Join(c.options.Dir, name(i)+".log") }

// Kill ends a member as kill -9 does. Its data directory stays.
func (c *Cluster) Kill(i int) error { return c.members[i].Kill() }

// Restart starts a member that was killed, at its addresses, and returns when it answers.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	if err := c.start(i); err != nil {
		return err
	}
	return c.wait(ctx, i)
}

// Close kills all members, and removes their directory if Start made it.
func (c *Cluster) Close() error {
	var errs []error
	for _, member := range c.members {
		if member != nil {
			errs = append(errs, member.Kill())
		}
	}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.options.Dir))
	}
	return errors.Join(errs...)
}
