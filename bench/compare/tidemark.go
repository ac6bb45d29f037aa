package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

const (
	tidemarkNodes    = 3
	tidemarkReplicas = 3
)

// tidemarkName returns the name of the subject with a keyspace of a number of hash partitions.
func tidemarkName(partitions int) string {
	if partitions == 1 {
		return "Tidemark, 1 partition"
	}
	return fmt.Sprintf("Tidemark, %d partitions", partitions)
}

// rangeName returns the name of the subject with a keyspace of a number of range partitions.
func rangeName(partitions int) string {
	return fmt.Sprintf("Tidemark, %d range partitions", partitions)
}

// evenly returns the keys that divide bench's keys into equal parts. A key is a prefix and
// hexadecimal digits, which are all equally likely.
func evenly(partitions int) [][]byte {
	var at [][]byte
	for i := 1; i < partitions; i++ {
		at = append(at, fmt.Appendf(nil, "user%04x", i*0x10000/partitions))
	}
	return at
}

// tidemarkCluster is one core server and three data nodes of one binary, with one keyspace for each
// number of partitions.
type tidemarkCluster struct {
	binary    string
	variant   variant
	certs     certificates
	processes []*process.Process
	// admin are the HTTP addresses of the processes.
	admin     []string
	keyspaces []subject
}

// tidemarkVersion also proves that the program exists and starts.
func tidemarkVersion(binary string) (string, error) {
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("no Tidemark to measure: "+
			"make it with `make build`, or name it with -tidemark: %w", err)
	}
	output, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", binary, err)
	}
	line, _, _ := strings.Cut(string(output), "\n")
	return strings.TrimSpace(line), nil
}

// startTidemark starts the servers in fresh directories below dir, and creates the keyspaces of the
// subjects whose names match.
func startTidemark(
	ctx context.Context, binary, dir string, v variant, keyspaces *regexp.Regexp,
) (*tidemarkCluster, error) {
	addresses, err := process.FreeAddresses(2 * (1 + tidemarkNodes))
	if err != nil {
		return nil, err
	}
	listen, admin := addresses[:1+tidemarkNodes], addresses[1+tidemarkNodes:]
	core := listen[0]
	cluster := &tidemarkCluster{binary: binary, variant: v, admin: admin}
	if v.tls {
		if cluster.certs, err = makeCertificates(filepath.Join(dir, "certificates")); err != nil {
			return nil, err
		}
	}
	for i := range 1 + tidemarkNodes {
		name, roles := "core", "core"
		if i > 0 {
			name, roles = fmt.Sprintf("node%d", i), "node"
		}
		server, err := process.Start(process.Config{
			Name: v.name("Tidemark " + name),
			Path: binary,
			Args: append([]string{
				"start", "--dir", filepath.Join(dir, name), "--listen", listen[i],
				"--core", core, "--roles", roles, "--http", admin[i],
			}, cluster.certs.flags()...),
			Log: filepath.Join(dir, name+".log"),
		})
		if err != nil {
			return nil, errors.Join(err, cluster.close())
		}
		cluster.processes = append(cluster.processes, server)
	}
	if err := cluster.wait(ctx, admin); err != nil {
		return nil, errors.Join(err, cluster.close())
	}
	if err := cluster.makeKeyspaces(ctx, listen[1:], keyspaces); err != nil {
		return nil, errors.Join(err, cluster.close())
	}
	return cluster, nil
}

// makeKeyspaces creates one keyspace for each number of partitions.
func (c *tidemarkCluster) makeKeyspaces(
	ctx context.Context, endpoints []string, wanted *regexp.Regexp,
) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	flags := append([]string{"--endpoints", strings.Join(endpoints, ",")}, c.certs.flags()...)
	add := func(subjectName, keyspace, only string, shape ...string) error {
		if !wanted.MatchString(subjectName) {
			return nil
		}
		arguments := append([]string{
			"keyspace", "create", keyspace, "--quiet", "--replicas", fmt.Sprint(tidemarkReplicas),
		}, shape...)
		command := exec.CommandContext(ctx, c.binary, append(arguments, flags...)...)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, output)
		}
		c.keyspaces = append(c.keyspaces, subject{
			name: c.variant.name(subjectName), plain: subjectName, variant: c.variant, only: only,
			driver: ownProgram{
				binary: c.binary, keyspace: keyspace, arguments: flags,
				profiles: !c.variant.old,
			},
		})
		return nil
	}
	for _, partitions := range everyPartitions {
		if err := add(tidemarkName(partitions), fmt.Sprintf("bench%d", partitions), "",
			"--partitions", fmt.Sprintf("hash:%d", partitions)); err != nil {
			return err
		}
	}
	// Scans in key order need a keyspace that is partitioned by range, as all data in etcd is ordered:
	// a scan of 100 rows then asks one or two partitions. With hash partitions it has to ask all.
	for _, partitions := range rangePartitions {
		shape := []string{"--partitions", "range"}
		for _, key := range evenly(partitions) {
			shape = append(shape, "--split-at", string(key))
		}
		if err := add(rangeName(partitions), fmt.Sprintf("ordered%d", partitions), scanMany,
			shape...); err != nil {
			return err
		}
	}
	return nil
}

// profile writes the processor profile of each server for the given time below dir.
func (c *tidemarkCluster) profile(ctx context.Context, dir string, d time.Duration) error {
	client, scheme, err := c.certs.httpClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	for i, address := range c.admin {
		group.Go(func() error {
			url := fmt.Sprintf("%s://%s/debug/pprof/profile?seconds=%d", scheme, address,
				max(int(d.Seconds()), 1))
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s answers %s", url, response.Status)
			}
			file, err := os.Create(
				filepath.Join(dir, strings.ReplaceAll(c.processes[i].Name(), " ", "-")+".pprof"))
			if err != nil {
				return err
			}
			_, err = io.Copy(file, response.Body)
			return errors.Join(err, file.Close())
		})
	}
	return group.Wait()
}

// wait waits until every server is ready.
func (c *tidemarkCluster) wait(ctx context.Context, admin []string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	client, scheme, err := c.certs.httpClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for i, address := range admin {
		url := scheme + "://" + address + "/readyz"
		if err := process.Until(ctx, c.processes[i].Name()+" is ready", 50*time.Millisecond,
			func(ctx context.Context) error {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					return err
				}
				response, err := client.Do(request)
				if err != nil {
					return err
				}
				defer response.Body.Close()
				if response.StatusCode != http.StatusOK {
					return fmt.Errorf("%s answers %s", url, response.Status)
				}
				return nil
			}, c.processes...); err != nil {
			return err
		}
	}
	return nil
}

func (c *tidemarkCluster) subjects() []subject { return c.keyspaces }

func (c *tidemarkCluster) servers() []*process.Process { return c.processes }

// prepare does nothing: the SDK follows the leaders automatically.
func (c *tidemarkCluster) prepare(context.Context) error { return nil }

func (c *tidemarkCluster) close() error { return killAll(c.processes) }
