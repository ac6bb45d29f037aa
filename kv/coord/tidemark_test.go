package coord_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// tidemark is a core of servers in this process.
type tidemark struct {
	dir       string
	addresses []string
	servers   []*embedded.Server
}

// startTidemark starts a core of so many members, and returns when each answers.
func startTidemark(ctx context.Context, members int) (_ *tidemark, err error) {
	c := &tidemark{servers: make([]*embedded.Server, members)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "coord-"); err != nil {
		return nil, err
	}
	for range members {
		address, err := porttest.Choose()
		if err != nil {
			return nil, err
		}
		c.addresses = append(c.addresses, address)
	}
	return c, nil
}

// run starts the servers.
func (c *tidemark) run(ctx context.Context) error {
	for i := range c.servers {
		if err := c.start(ctx, i); err != nil {
			return err
		}
	}
	for i := range c.servers {
		if err := c.wait(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *tidemark) start(ctx context.Context, i int) (err error) {
	c.servers[i], err = embedded.StartServer(ctx, embedded.ServerConfig{
		Dir: filepath.Join(c.dir, strconv.Itoa(i)), Listen: c.addresses[i], Core: c.addresses,
		Roles: []string{embedded.RoleCore}, CoreHistory: -1})
	return err
}

// wait waits until a server answers a linearizable read.
func (c *tidemark) wait(ctx context.Context, i int) error {
	client, err := coord.Connect(ctx, c.addresses[i:i+1])
	if err != nil {
		return err
	}
	return client.Close()
}

func (c *tidemark) Endpoints() []string { return c.addresses }

func (c *tidemark) Leader(ctx context.Context) (int, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.addresses, Logger: zap.NewNop()})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	for {
		for i, address := range c.addresses {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			status, err := client.Status(limited, address)
			cancel()
			if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
				return i, nil
			}
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("no server says that it leads: %w", ctx.Err())
		}
	}
}

// Kill ends a server without handing over what it leads.
func (c *tidemark) Kill(i int) error { return c.servers[i].Close(context.Background()) }

func (c *tidemark) Restart(ctx context.Context, i int) error {
	if err := c.start(ctx, i); err != nil {
		return err
	}
	return c.wait(ctx, i)
}

func (c *tidemark) Close() error {
	var errs []error
	for _, s := range c.servers {
		if s != nil {
			errs = append(errs, s.Close(context.Background()))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// startService starts the coordination service that the tests are to run against.
func startService(ctx context.Context, members int) (cluster, error) {
	if *against == "etcd" {
		var args []string
		if members == 1 {
			args = []string{"--unsafe-no-fsync"} // it is never killed
		}
		return reference.Start(ctx, reference.Options{Members: members, Args: args})
	}
	c, err := startTidemark(ctx, members)
	if err != nil {
		return nil, err
	}
	if err := c.run(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
