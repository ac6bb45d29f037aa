package helm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The list of core servers names exactly the pods of the core's StatefulSets, is the same on all
// servers, and is made of the addresses that these give as their own.
func TestCoreListNamesThePodsOfTheCore(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		var want []string
		var lists []string
		for _, set := range o.statefulSets {
			list, _ := flag(server(set), "core")
			lists = append(lists, list)
			if component(set) != "core" {
				continue
			}
			for i := range int(*set.Spec.Replicas) {
				advertise, _ := flag(server(set), "advertise")
				want = append(want, strings.ReplaceAll(advertise, "$(POD_NAME)",
					fmt.Sprintf("%s-%d", set.Name, i)))
			}
		}
		if n := len(want); n != 1 && n != 3 && n != 5 {
			t.Errorf("the core has %d servers", n)
		}
		for _, list := range lists {
			got := strings.Split(list, ",")
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("--core=%s\nthe pods are %s", list, strings.Join(want, ","))
			}
			if list != lists[0] {
				t.Errorf("servers have different lists:\n%s\n%s", list, lists[0])
			}
		}
	})
}

// A server gives the name that its pod has in the DNS, and the port on which it listens.
func TestServersAdvertiseTheirStableNames(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		for _, set := range o.statefulSets {
			container := server(set)
			listen, _ := flag(container, "listen")
			advertise, _ := flag(container, "advertise")
			for i, host := range hosts(set, o.domain()) {
				got := strings.ReplaceAll(advertise, "$(POD_NAME)", fmt.Sprintf("%s-%d", set.Name, i))
				if got != host+listen {
					t.Errorf("--advertise=%s is %s, and the pod is reached by %s%s", advertise, got, host,
						listen)
				}
			}
			if port := portNamed(t, container, "tidemark"); listen != fmt.Sprintf(":%d", port) {
				t.Errorf("--listen=%s, and the port is %d", listen, port)
			}
			i := slices.IndexFunc(container.Env, func(e core.EnvVar) bool { return e.Name == "POD_NAME" })
			if i < 0 || container.Env[i].ValueFrom.FieldRef.FieldPath != "metadata.name" {
				t.Error("POD_NAME is not the name of the pod")
			}
		}
	})
}

func portNamed(t *testing.T, container *core.Container, name string) int32 {
	t.Helper()
	for _, port := range container.Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	t.Fatalf("no port is named %s", name)
	return 0
}

// A StatefulSet's headless service exists, selects its pods whether they are ready or not, and has
// their ports.
func TestHeadlessServices(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		for _, set := range o.statefulSets {
			service := o.service(t, set.Spec.ServiceName)
			switch {
			case service.Spec.ClusterIP != core.ClusterIPNone:
				t.Errorf("%s is not headless", service.Name)
			case !service.Spec.PublishNotReadyAddresses:
				t.Errorf("%s hides servers that are not ready", service.Name)
			case !selects(service.Spec.Selector, set):
				t.Errorf("%s does not select the pods of %s", service.Name, set.Name)
			}
			for _, port := range service.Spec.Ports {
				if want := portNamed(t, server(set), port.TargetPort.StrVal); port.Port != want {
					t.Errorf("%s: port %d leads to %d", service.Name, port.Port, want)
				}
			}
		}
	})
}

// Clients reach all servers that are ready by one service, and nothing else; in particular no port
// for monitoring, and not the pod of a test.
func TestClientService(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		services := slices.DeleteFunc(slices.Clone(o.services), func(s *core.Service) bool {
			return s.Spec.ClusterIP == core.ClusterIPNone
		})
		if len(services) != 1 {
			t.Fatalf("%d services for clients", len(services))
		}
		service := services[0]
		if service.Spec.PublishNotReadyAddresses {
			t.Error("clients are sent to servers that are not ready")
		}
		for _, set := range o.statefulSets {
			if !selects(service.Spec.Selector, set) {
				t.Errorf("clients do not reach %s", set.Name)
			}
		}
		if ports := service.Spec.Ports; len(ports) != 1 ||
			ports[0].TargetPort != intstr.FromString("tidemark") {
			t.Errorf("ports %v", ports)
		}
		for _, pod := range o.pods {
			for _, selector := range o.selectors(t) {
				if selector.Matches(labels.Set(pod.Labels)) {
					t.Errorf("the pod %s is taken for a server", pod.Name)
				}
			}
			want := fmt.Sprintf("%s.%s.svc.%s:%d", service.Name, namespace, o.domain(),
				service.Spec.Ports[0].Port)
			if got, _ := flag(&pod.Spec.Containers[0], "endpoints"); got != want {
				t.Errorf("the test asks %s, and the service is %s", got, want)
			}
		}
	})
}

func (o *objects) service(t *testing.T, name string) *core.Service {
	t.Helper()
	for _, service := range o.services {
		if service.Name == name {
			return service
		}
	}
	t.Fatalf("there is no service %s", name)
	return nil
}

// selectors are those of all services, budgets and StatefulSets.
func (o *objects) selectors(t *testing.T) (all []labels.Selector) {
	t.Helper()
	for _, service := range o.services {
		all = append(all, labels.SelectorFromSet(service.Spec.Selector))
	}
	for _, budget := range o.budgets {
		all = append(all, selector(t, budget.Spec.Selector))
	}
	for _, set := range o.statefulSets {
		all = append(all, selector(t, set.Spec.Selector))
	}
	return all
}

func selects(selector map[string]string, set *apps.StatefulSet) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(set.Spec.Template.Labels))
}

func selector(t *testing.T, s *meta.LabelSelector) labels.Selector {
	t.Helper()
	parsed, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// A StatefulSet selects its own pods, and no other's.
func TestStatefulSetsSelectTheirOwnPods(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		for _, set := range o.statefulSets {
			for _, other := range o.statefulSets {
				got := selector(t, set.Spec.Selector).Matches(labels.Set(other.Spec.Template.Labels))
				if got != (set == other) {
					t.Errorf("%s selects the pods of %s: %v", set.Name, other.Name, got)
				}
			}
		}
	})
}

// Probes go to the HTTP port, and speak TLS when it does. Only readiness depends on the cluster.
func TestProbes(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		for _, set := range o.statefulSets {
			container := server(set)
			address, _ := flag(container, "http")
			if want := fmt.Sprintf(":%d", portNamed(t, container, "http")); address != want {
				t.Errorf("--http=%s, and the port is %s", address, want)
			}
			scheme := core.URISchemeHTTP
			if _, tls := flag(container, "tls-cert"); tls {
				scheme = core.URISchemeHTTPS
			}
			for _, probe := range []struct {
				of   *core.Probe
				path string
			}{
				{container.StartupProbe, "/livez"}, {container.LivenessProbe, "/livez"},
				{container.ReadinessProbe, "/readyz"},
			} {
				if probe.of == nil || probe.of.HTTPGet == nil {
					t.Fatalf("no probe for %s", probe.path)
				}
				get := probe.of.HTTPGet
				if get.Path != probe.path || get.Port != intstr.FromString("http") || get.Scheme != scheme {
					t.Errorf("a probe asks %s://%s%s; want %s://http%s", get.Scheme, get.Port.String(),
						get.Path, scheme, probe.path)
				}
			}
		}
	})
}

// Of the servers that hold replicas, and of the members of the core, one at a time may be evicted:
// each pod is in exactly one budget (Kubernetes evicts no pod that is in two), and servers of which
// one partition or the core consists are in the same.
func TestDisruptionBudgets(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		budgetOf := map[string]string{}
		for _, set := range o.statefulSets {
			var found []string
			for _, budget := range o.budgets {
				if budget.Spec.MaxUnavailable == nil || budget.Spec.MaxUnavailable.IntValue() != 1 {
					t.Errorf("%s: maxUnavailable %v", budget.Name, budget.Spec.MaxUnavailable)
				}
				if selector(t, budget.Spec.Selector).Matches(labels.Set(set.Spec.Template.Labels)) {
					found = append(found, budget.Name)
				}
			}
			if len(found) != 1 {
				t.Fatalf("%s is in the budgets %v", set.Name, found)
			}
			roles, _ := flag(server(set), "roles")
			for role := range strings.SplitSeq(roles, ",") {
				if before, ok := budgetOf[role]; ok && before != found[0] {
					t.Errorf("servers with the role %s are in the budgets %s and %s", role, before, found[0])
				}
				budgetOf[role] = found[0]
			}
		}
	})
}

// The servers of the core and those with replicas are updated one after the other: where several
// StatefulSets share a role, at most one of them takes new versions.
func TestOneStatefulSetIsUpdatedAtATime(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		free := map[string][]string{}
		for _, set := range o.statefulSets {
			strategy := set.Spec.UpdateStrategy
			if strategy.Type != apps.RollingUpdateStatefulSetStrategyType ||
				strategy.RollingUpdate.MaxUnavailable != nil {
				t.Errorf("%s: strategy %v", set.Name, strategy)
			}
			switch *strategy.RollingUpdate.Partition {
			case *set.Spec.Replicas: // none of its pods takes a new version
			case 0:
				roles, _ := flag(server(set), "roles")
				for role := range strings.SplitSeq(roles, ",") {
					free[role] = append(free[role], set.Name)
				}
			default:
				t.Errorf("%s: partition %d", set.Name, *strategy.RollingUpdate.Partition)
			}
		}
		for role, sets := range free {
			if len(sets) > 1 {
				t.Errorf("servers with the role %s are updated at the same time: %v", role, sets)
			}
		}
	})
}

func TestRollout(t *testing.T) {
	zones := `nodes: {zones: [a, b, c]}` + "\n"
	for rollout, want := range map[string]string{
		"": "core", "node-a": "core node-a", "core": "core", "all": "core node-a node-b node-c",
	} {
		var free []string
		o := mustRender(t, release{values: zones + "rollout: " + fmt.Sprintf("%q", rollout)})
		for _, set := range o.statefulSets {
			if *set.Spec.UpdateStrategy.RollingUpdate.Partition == 0 {
				free = append(free, set.Labels["tidemark/set"])
			}
		}
		slices.Sort(free)
		if got := strings.Join(free, " "); got != want {
			t.Errorf("with rollout %q %s take a new version; want %s", rollout, got, want)
		}
	}
}

// What docs/operations.md asks of Kubernetes, and what a restricted namespace asks of pods.
func TestPods(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		for _, set := range o.statefulSets {
			spec := set.Spec
			if spec.PodManagementPolicy != apps.ParallelPodManagement {
				t.Errorf("%s: %s", set.Name, spec.PodManagementPolicy)
			}
			if spec.MinReadySeconds < 1 {
				t.Errorf("%s: an update goes on as soon as a server is ready", set.Name)
			}
			keep := spec.PersistentVolumeClaimRetentionPolicy
			if keep.WhenDeleted != apps.RetainPersistentVolumeClaimRetentionPolicyType ||
				keep.WhenScaled != apps.RetainPersistentVolumeClaimRetentionPolicyType {
				t.Errorf("%s: data are deleted", set.Name)
			}
			pod := spec.Template.Spec
			if grace := *pod.TerminationGracePeriodSeconds; grace != 40 {
				t.Errorf("%s has %d s to stop", set.Name, grace)
			}
			checkRestricted(t, &pod)
			dir, _ := flag(server(set), "dir")
			if !slices.ContainsFunc(server(set).VolumeMounts, func(m core.VolumeMount) bool {
				return m.Name == spec.VolumeClaimTemplates[0].Name && m.MountPath == dir && !m.ReadOnly
			}) {
				t.Errorf("%s: --dir %s is not on the volume", set.Name, dir)
			}
		}
		for _, pod := range o.pods {
			checkRestricted(t, &pod.Spec)
		}
	})
}

func checkRestricted(t *testing.T, pod *core.PodSpec) {
	t.Helper()
	of := pod.SecurityContext
	if !*of.RunAsNonRoot || *of.RunAsUser != 65532 || *of.FSGroup != 65532 ||
		of.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context of the pod: %v", of)
	}
	if *pod.AutomountServiceAccountToken {
		t.Error("the pod has a token of the API server")
	}
	for _, container := range pod.Containers {
		of := container.SecurityContext
		if !*of.ReadOnlyRootFilesystem || *of.AllowPrivilegeEscalation ||
			!slices.Equal(of.Capabilities.Drop, []core.Capability{"ALL"}) ||
			len(of.Capabilities.Add) > 0 {
			t.Errorf("security context of %s: %v", container.Name, of)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s has no resources", container.Name)
		}
		for _, mount := range container.VolumeMounts {
			if !mount.ReadOnly && mount.Name != "data" {
				t.Errorf("%s can write to %s", container.Name, mount.MountPath)
			}
		}
	}
}

// Pods are spread over machines and zones, together with those that may hold replicas of the same
// partitions; those of a zone are kept in it.
func TestSpread(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		for _, set := range o.statefulSets {
			pod := set.Spec.Template.Spec
			keys := map[string]labels.Selector{}
			for _, constraint := range pod.TopologySpreadConstraints {
				keys[constraint.TopologyKey] = selector(t, constraint.LabelSelector)
			}
			locality, _ := flag(server(set), "locality")
			_, zone, zoned := strings.Cut(locality, "zone=")
			zoned = zoned && zone != "$(ZONE)"
			if zoned && pod.NodeSelector[core.LabelTopologyZone] != zone {
				t.Errorf("%s: zone=%s, and the pods go to %v", set.Name, zone, pod.NodeSelector)
			}
			if (keys[core.LabelTopologyZone] != nil) == zoned {
				t.Errorf("%s: in a zone %v, spread over zones %v", set.Name, zoned, !zoned)
			}
			if keys[core.LabelHostname] == nil && !strings.Contains(o.values, `host: ""`) {
				t.Errorf("%s: not spread over machines", set.Name)
			}
			roles, _ := flag(server(set), "roles")
			for key, selector := range keys {
				for _, other := range o.statefulSets {
					otherRoles, _ := flag(server(other), "roles")
					together := strings.Contains(roles, "node") == strings.Contains(otherRoles, "node")
					if got := selector.Matches(labels.Set(other.Spec.Template.Labels)); got != together {
						t.Errorf("%s is spread over %s together with %s: %v", set.Name, key, other.Name, got)
					}
				}
			}
		}
	})
}

// Either all servers that hold data say in which zone they are, or none.
func TestLocality(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		said := map[bool]bool{}
		for _, set := range o.statefulSets {
			if roles, _ := flag(server(set), "roles"); strings.Contains(roles, "node") {
				locality, _ := flag(server(set), "locality")
				said[strings.Contains(locality, "zone=")] = true
			}
		}
		if len(said) != 1 {
			t.Error("some servers with data have a zone and some have none")
		}
	})
	o := mustRender(t, release{values: cases["zones"]})
	var got []string
	for _, set := range o.statefulSets {
		locality, _ := flag(server(set), "locality")
		got = append(got, fmt.Sprintf("%s %d %s", set.Name, *set.Spec.Replicas, locality))
	}
	want := []string{
		"db-tidemark-core-a 2 region=eu,zone=a",
		"db-tidemark-core-b 2 region=eu,zone=b",
		"db-tidemark-core-c 1 region=eu,zone=c",
		"db-tidemark-node-a 3 region=eu,zone=a",
		"db-tidemark-node-b 3 region=eu,zone=b",
		"db-tidemark-node-c 2 region=eu,zone=europe-west1-c",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Every object is in the namespace of the release, has labels of it, and a name of its own.
func TestObjects(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		seen := map[string]bool{}
		for _, object := range o.all {
			if object.GetNamespace() != namespace {
				t.Errorf("%s is in namespace %q", object.GetName(), object.GetNamespace())
			}
			key := fmt.Sprintf("%T %s", object, object.GetName())
			if seen[key] {
				t.Errorf("two objects %s", key)
			}
			seen[key] = true
			if object.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
				t.Errorf("%s has the labels %v", key, object.GetLabels())
			}
		}
	})
}

var todo = regexp.MustCompile(`%!|<no value>|<nil>`)

// The notes say how to reach the cluster, and hold nothing that was meant to be filled in.
func TestNotes(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		if found := todo.FindString(o.notes); found != "" {
			t.Errorf("%s in\n%s", found, o.notes)
		}
		for _, config := range o.configMaps {
			endpoint, ok := config.Data["TIDEMARK_ENDPOINTS"]
			if ok && !strings.Contains(o.notes, endpoint) {
				t.Errorf("%s is missing in\n%s", endpoint, o.notes)
			}
		}
	})
}
