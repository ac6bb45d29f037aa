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

// Limit is the amount of memory that a process may use.
type Limit struct {
	// Bytes is the limit.
	Bytes int64
	// Source says where the limit comes from, for display.
	Source string
}

// fallback is the limit on a system that does not report its memory.
const fallback = 2 << 30

// leastMargin is the least margin below the limit of a control group.
const leastMargin = 32 * MiB

// Find returns the limit of this process. goLimit is the process's GOMEMLIMIT in bytes, or
// math.MaxInt64.
//
// An eighth of a control group's limit is kept free, and at least leastMargin, because the kernel
// also counts its own memory for the group's connections and files, such as pages to be written.
// Half of a machine's memory is kept free, for other programs and other servers.
func Find(goLimit int64) Limit { return find(os.DirFS("/"), goLimit) }

// GroupLimit returns the memory limit of the process's control group, in bytes, or 0 if there is
// none.
func GroupLimit() int64 {
	limit, _ := controlGroup(os.DirFS("/"))
	if limit == math.MaxInt64 {
		return 0
	}
	return max(0, limit)
}

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

// machine returns the machine's memory in bytes, or 0 if the system does not report it.
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

// controlGroup returns the lowest memory limit of the process's control groups, its own and those
// above it, and the file with that limit. It returns math.MaxInt64 if there is none. Both versions
// of control groups are checked, because a system may have both.
func controlGroup(root fs.FS) (limit int64, at string) {
	limit = math.MaxInt64
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit, ""
	}
	mounts := mountsOf(root)
	// A line is hierarchy:controllers:path. Version 2 has hierarchy 0, and no controllers.
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

// mount is a mounted hierarchy of control groups.
type mount struct {
	version int
	// root is the group that is mounted at point. In a container it may be the container's own group.
	root, point string
}

// mountsOf finds the mount points of control groups with a memory controller.
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

// unescape decodes the form in which mountinfo writes blanks and other special characters: a
// backslash and three octal digits.
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
		rest = "" // the group is outside the mount: the mounted group is above it
	}
	for dir := path.Join("/", rest); ; dir = path.Dir(dir) {
		dirs = append(dirs, path.Join(m.point, dir))
		if dir == "/" {
			return dirs
		}
	}
}

// lowest lowers limit to the lowest limit in any of the directories' files.
func lowest(root fs.FS, dirs, files []string, limit *int64, at *string) {
	for _, dir := range dirs {
		for _, file := range files {
			name := path.Join(dir, file)
			text, err := fs.ReadFile(root, strings.TrimPrefix(name, "/"))
			if err != nil {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && n > 0 && n < *limit { // "max" is not a number
				*limit, *at = n, name
			}
		}
	}
}
