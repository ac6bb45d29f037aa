package links

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSetUpNamesEverythingWithThePrefix(t *testing.T) {
	var text []string
	for _, c := range setUp(2) {
		text = append(text, strings.Join(c.args, " "))
	}
	for _, want := range []string{
		"netns add tmnem1", "netns add tmnem2",
		"link add tmnemv2 type veth peer name eth0 netns tmnem2",
		"link set tmnemt1 netns tmnem1",
		"-n tmnem2 addr add 198.18.77.2/24 dev eth0",
		"addr add 198.18.77.254/24 dev tmnembr",
	} {
		if !slices.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, strings.Join(text, "\n"))
		}
	}
	for _, line := range text {
		if !strings.Contains(line, Prefix) {
			t.Errorf("%q touches what is not ours", line)
		}
	}
}

func TestNamesFitTheKernel(t *testing.T) {
	for _, h := range []Host{Clients, 0, maxServers - 1} {
		for _, name := range []string{veth(h), tunnel(h), bridge} {
			if len(name) > 15 {
				t.Errorf("%q is longer than a name of a device may be", name)
			}
		}
	}
}

func TestHostsOfAddresses(t *testing.T) {
	for _, c := range []struct {
		last byte
		host Host
		ok   bool
	}{{0, 0, false}, {1, 0, true}, {8, 7, true}, {9, 0, false}, {254, Clients, true},
		{255, 0, false}} {
		if h, ok := hostOf(c.last, 8); h != c.host || ok != c.ok {
			t.Errorf("address %d: %v %v, want %v %v", c.last, h, ok, c.host, c.ok)
		}
	}
}

func TestReroute(t *testing.T) {
	cut, refused, slow := Shape{Cut: true}, Shape{Cut: true, Refused: true},
		Shape{Delay: time.Second}
	out, back, client := Link{0, 1}, Link{1, 0}, Link{Clients, 1}
	for _, c := range []struct {
		name          string
		before, after map[Link]Shape
		want          []string
	}{
		{"nothing changes", map[Link]Shape{out: cut}, map[Link]Shape{out: cut, back: {}}, nil},
		{"cut and slow", nil, map[Link]Shape{out: cut, back: slow}, []string{
			"-n tmnem1 -batch -: route add 198.18.77.2/32 dev tmnemt1 src 198.18.77.1",
			"-n tmnem2 -batch -: route add 198.18.77.1/32 dev tmnemt2 src 198.18.77.2",
		}},
		{"the clients have no namespace", nil, map[Link]Shape{client: cut}, []string{
			"-batch -: route add 198.18.77.2/32 dev tmnemt0 src 198.18.77.254",
		}},
		{"one host, one command", nil, map[Link]Shape{{0, 2}: refused, out: refused}, []string{
			"-n tmnem1 -batch -: route add unreachable 198.18.77.2/32; route add unreachable " +
				"198.18.77.3/32",
		}},
		{"what the device does needs no route", map[Link]Shape{out: cut}, map[Link]Shape{out: slow},
			nil},
		{"healed", map[Link]Shape{out: cut, back: refused}, map[Link]Shape{out: {}, back: {}},
			[]string{
				"-n tmnem1 -batch -: route del 198.18.77.2/32 dev tmnemt1 src 198.18.77.1",
				"-n tmnem2 -batch -: route del unreachable 198.18.77.1/32",
			}},
		{"from one kind to the other", map[Link]Shape{out: cut}, map[Link]Shape{out: refused},
			[]string{
				"-n tmnem1 -batch -: route del 198.18.77.2/32 dev tmnemt1 src 198.18.77.1; " +
					"route add unreachable 198.18.77.2/32",
			}},
	} {
		var got []string
		for _, command := range reroute(c.before, c.after) {
			got = append(got, strings.Join(command.args, " ")+": "+strings.ReplaceAll(
				strings.TrimSpace(command.stdin), "\n", "; "))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"),
				strings.Join(c.want, "\n"))
		}
	}
}

func TestShapesOf(t *testing.T) {
	s := shapes{}
	s.merge(map[Link]Shape{{0, 1}: {Cut: true}, {1, 0}: {Delay: 1}})
	s.merge(map[Link]Shape{{0, 1}: {}})
	if want := (shapes{{1, 0}: {Delay: 1}}); !maps.Equal(s, want) {
		t.Errorf("%v, want %v: healthy links are not kept", s, want)
	}
}
