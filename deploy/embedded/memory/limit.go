package memory

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Limit is how much memory a process may use.
type Limit struct {
	// Bytes is the limit.
	Bytes int64
	// Source says where the limit comes from, for people.
	Source string
}

// fallback is the limit on a system that does not say how much memory there is.
const fallback = 2 << 30

// leastMargin is the least that is left of the limit of a control group.
const leastMargin = 32 * MiB

// Find returns the limit of this process. goLimit is the process's GOMEMLIMIT in bytes;
// math.MaxInt64 for none.
//
// Of the limit of a control group an eighth is left, and leastMargin at least: the kernel counts
// against that what it keeps for the group's connections and files, pages that are to be written
// for one. Of a machine's memory half is left, for other programs, and for other servers.
func Find(goLimit int64) Limit { return find(os.DirFS("/"), goLimit) }

func find(root fs.FS, goLimit int64) Limit {
	limit := Limit{fallback, "no limit was found"}
	if total := machine(root); total > 0 {
		limit = Limit{total / 2, fmt.Sprintf("half of the machine's %d MiB", total/MiB)}
		if group, at := controlGroup(root); group < total {
			margin := max(group/8, leastMargin)
			limit = Limit{max(group-margin, 0), fmt.Sprintf("the control group's limit of %d MiB (%s), "+
				"less %d MiB", group/MiB, at, margin/MiB)}
		}
	}
	if goLimit < limit.Bytes {
		limit = Limit{goLimit, "GOMEMLIMIT"}
	}
	return limit
}

// machine is the machine's memory in bytes; 0 if the system does not say.
func machine(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kilobytes); n == 1 && kilobytes > 0 &&
			kilobytes < math.MaxInt64>>10 {
			return kilobytes << 10
		}
	}
	return 0
}

// controlGroup is the lowest memory limit of the control groups that the process is in, its own and
// those above, and the file that says so; math.MaxInt64 for none. Both versions of control groups
// are looked at, since a system may have both.
func controlGroup(root fs.FS) (limit int64, at string) {
	limit = math.MaxInt64
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit, ""
	}
	mounts := mountsOf(root)
	// A line is hierarchy:controllers:path; version 2 has hierarchy 0, and no controllers.
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for _, m := range mounts {
			switch {
			case m.version == 2 && fields[0] == "0" && fields[1] == "":
				lowest(root, m.below(fields[2]), []string{"memory.max", "memory.high"}, &limit, &at)
			case m.version == 1 && hasController(fields[1], "memory"):
				lowest(root, m.below(fields[2]), []string{"memory.limit_in_bytes"}, &limit, &at)
			}
		}
	}
	return limit, at
}

func hasController(list, name string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one == name {
			return true
		}
	}
	return false
}

// mount is where a hierarchy of control groups is mounted.
type mount struct {
	version int
	// root is the group that is mounted at point: in a container it may be the container's own.
	root, point string
}

// mountsOf finds where control groups with a memory controller are mounted.
func mountsOf(root fs.FS) (all []mount) {
	text, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, MiB)
	for lines.Scan() {
		// id parent major:minor root point options [tags...] - type source super-options
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		m := mount{root: unescape(left[3]), point: unescape(left[4])}
		switch {
		case right[0] == "cgroup2":
			m.version = 2
		case right[0] == "cgroup" && hasController(right[2], "memory"):
			m.version = 1
		default:
			continue
		}
		all = append(all, m)
	}
	return all
}

// unescape undoes how mountinfo writes blanks and the like: a backslash and three octal digits.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// below lists the directories of a group and of the groups above it, as far as they are mounted.
func (m mount) below(group string) (dirs []string) {
	rest, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
	if !ok || strings.HasPrefix(rest, "/..") {
		rest = "" // a group outside of what is mounted: the mounted one is above
	}
	for dir := path.Join("/", rest); ; dir = path.Dir(dir) {
		dirs = append(dirs, path.Join(m.point, dir))
		if dir == "/" {
			return dirs
		}
	}
}

// lowest takes the lowest limit that any of the directories' files has.
func lowest(root fs.FS, dirs, files []string, limit *int64, at *string) {
	for _, dir := range dirs {
		for _, file := range files {
			name := path.Join(dir, file)
			text, err := fs.ReadFile(root, strings.TrimPrefix(name, "/"))
			if err != nil {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && n > 0 && n < *limit { // "max" is no number
				*limit, *at = n, name
			}
		}
	}
}
