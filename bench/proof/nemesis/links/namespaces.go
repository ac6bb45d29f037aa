package links

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Namespaces is a Network of network namespaces. See the package's comment.
type Namespaces struct {
	servers int
	tunnels map[Host]*tun
	ctx     context.Context
	cancel  context.CancelFunc
	readers sync.WaitGroup
	lines   sync.WaitGroup

	mu struct {
		sync.Mutex
		shapes shapes
	}
}

// NewNamespaces makes namespaces for a number of servers. The error ErrNotHere means that this
// machine, or this user, cannot have namespaces.
func NewNamespaces(servers int) (_ *Namespaces, err error) {
	if servers > maxServers {
		return nil, fmt.Errorf("at most %d servers can have namespaces, not %d", maxServers,
			servers)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("network namespaces are %w: not root", ErrNotHere)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("network namespaces are %w: no ip command (Debian's package "+
			"iproute2)", ErrNotHere)
	}
	n := &Namespaces{servers: servers, tunnels: make(map[Host]*tun)}
	n.mu.shapes = shapes{}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("network namespaces are %w: %w", ErrNotHere, err),
				n.Close())
		}
	}()
	hosts := []Host{Clients}
	for i := range servers {
		hosts = append(hosts, Host(i))
	}
	for _, h := range hosts {
		if n.tunnels[h], err = openTun(tunnel(h)); err != nil {
			return nil, err
		}
	}
	for _, c := range setUp(servers) {
		if err := c.run(); err != nil {
			return nil, err
		}
	}
	for _, h := range hosts {
		// Packets that come out of a TUN device have a sender whose route uses another device.
		if err := looseReversePath(h); err != nil {
			return nil, err
		}
		n.readers.Go(func() { n.forward(h) })
	}
	return n, nil
}

func (c command) run() error {
	cmd := exec.Command("ip", c.args...)
	cmd.Stdin = strings.NewReader(c.stdin)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s%s", strings.Join(c.args, " "), err,
			bytes.TrimSpace(output), c.stdin)
	}
	return nil
}

func looseReversePath(h Host) error {
	path := "/proc/sys/net/ipv4/conf/" + tunnel(h) + "/rp_filter"
	if h == Clients {
		return os.WriteFile(path, []byte("2"), 0)
	}
	output, err := exec.Command("ip", "netns", "exec", namespace(h), "sh", "-c",
		"echo 2 > "+path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("reverse path filter of %v: %w: %s", h, err, bytes.TrimSpace(output))
	}
	return nil
}

// forward reads the packets that a host sends over links with faults, and treats them as the link's
// shape says.
func (n *Namespaces) forward(from Host) {
	lines := make(map[Host]*line)
	packet := make([]byte, 1<<16)
	for {
		size, err := n.tunnels[from].Read(packet)
		if err != nil {
			return // closed
		}
		const ipv4Header, destination = 20, 16
		if size < ipv4Header || packet[0]>>4 != 4 {
			continue
		}
		to, ok := hostOf(packet[destination+3], n.servers)
		if !ok {
			continue
		}
		shape := n.shape(Link{from, to})
		if shape.Cut {
			continue
		}
		l := lines[to]
		if l == nil {
			l = newLine()
			lines[to] = l
			n.lines.Go(func() { _ = l.deliver(n.ctx, n.tunnels[to].write) }) // ends with ctx
		}
		l.offer(shape, bytes.Clone(packet[:size])) // a full line loses packets, like a real line
	}
}

func (n *Namespaces) shape(l Link) Shape {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.shapes[l]
}

// Kind implements Network.
func (n *Namespaces) Kind() string {
	return "a network namespace for each server, on a bridge; faults of links by routes and TUN " +
		"devices"
}

// Address implements Network.
func (n *Namespaces) Address(server Host) Address {
	service := fmt.Sprintf("%s:%d", ip(server), servicePort)
	return Address{Listen: service, Advertise: service, HTTP: fmt.Sprintf("%s:%d", ip(server),
		httpPort)}
}

// Command implements Network. The program replaces ip(8) in the same process.
func (n *Namespaces) Command(server Host, path string, args []string) (string, []string) {
	return "ip", append([]string{"netns", "exec", namespace(server), path}, args...)
}

// Started implements Network. Namespaces need no process ids.
func (n *Namespaces) Started(Host, int) {}

// Set implements Network.
func (n *Namespaces) Set(changed map[Link]Shape) error {
	n.mu.Lock()
	commands := reroute(n.mu.shapes, changed)
	n.mu.shapes.merge(changed)
	n.mu.Unlock()
	var failures []error
	for _, c := range commands {
		failures = append(failures, c.run())
	}
	return errors.Join(failures...)
}

// Close implements Network.
func (n *Namespaces) Close() error {
	n.cancel()
	var failures []error
	for _, t := range n.tunnels {
		if t != nil {
			failures = append(failures, t.Close())
		}
	}
	n.readers.Wait()
	n.lines.Wait()
	return errors.Join(append(failures, RemoveLeftovers())...)
}

// RemoveLeftovers ends the processes that run in namespaces of this package, and removes these
// namespaces and the bridge. It returns an error only if something exists and cannot be removed.
func RemoveLeftovers() error {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		return nil // without ip(8) and root no run can have made any
	}
	output, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return nil // no namespaces on this machine
	}
	var failures []error
	for _, name := range ours(string(output)) {
		pids, err := exec.Command("ip", "netns", "pids", name).Output()
		if err != nil {
			failures = append(failures, fmt.Errorf("processes in namespace %s: %w", name, err))
		}
		for _, field := range strings.Fields(string(pids)) {
			if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended by itself
			}
		}
		failures = append(failures, command{args: []string{"netns", "del", name}}.run())
	}
	// The kernel removes the cables of a namespace some time after the namespace.
	devices, err := filepath.Glob("/sys/class/net/" + Prefix + "*")
	failures = append(failures, err)
	for _, device := range devices {
		err := command{args: []string{"link", "del", filepath.Base(device)}}.run()
		if _, gone := os.Stat(device); gone == nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// ours returns the names of this package's namespaces in the output of ip netns list.
func ours(list string) []string {
	var names []string
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		number, ok := strings.CutPrefix(fields[0], Prefix)
		if !ok {
			continue
		}
		if _, err := strconv.Atoi(number); err == nil {
			names = append(names, fields[0])
		}
	}
	return names
}
