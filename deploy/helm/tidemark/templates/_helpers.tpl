{{- /* Names. Each is as it is or refused: cut names could be those of two releases. */ -}}

{{- define "tidemark.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{- define "tidemark.fullname" -}}
{{- $name := include "tidemark.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name -}}
{{- end -}}
{{- end -}}

{{- define "tidemark.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "tidemark.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "tidemark.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* What selects the servers; it never changes, since selectors cannot. */ -}}
{{- define "tidemark.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tidemark.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tidemark.labels" -}}
{{ include "tidemark.selectorLabels" . }}
{{ include "tidemark.chartLabels" . }}
{{- end -}}

{{- /* Labels of what is no server: nothing selects by them. */ -}}
{{- define "tidemark.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: tidemark
{{- end -}}

{{- /* The number of data nodes beside the core servers. */ -}}
{{- define "tidemark.nodeReplicas" -}}
{{- if kindIs "invalid" .Values.nodes.replicas -}}
{{- ternary 0 3 .Values.combined -}}
{{- else -}}
{{- int .Values.nodes.replicas -}}
{{- end -}}
{{- end -}}

{{- /*
The StatefulSets, as {"sets": [...]}: of each its name without the prefix, its component, its
number of replicas, its zone (or ""), and whether there are others of its kind, which must not be
updated at the same time.
*/ -}}
{{- define "tidemark.sets" -}}
{{- $sets := list -}}
{{- $nodes := include "tidemark.nodeReplicas" . | int -}}
{{- range $component := list "core" "node" -}}
  {{- $values := ternary $.Values.core $.Values.nodes (eq $component "core") -}}
  {{- $replicas := ternary (int $.Values.core.replicas) $nodes (eq $component "core") -}}
  {{- $zones := $values.zones | default list -}}
  {{- if gt $replicas 0 -}}
    {{- if not $zones -}}
      {{- $sets = append $sets (dict "name" $component "component" $component "zone" ""
          "replicas" $replicas) -}}
    {{- end -}}
    {{- range $i, $zone := $zones -}}
      {{- $share := add (div $replicas (len $zones))
          (ternary 1 0 (lt $i (int (mod $replicas (len $zones))))) -}}
      {{- $name := $zone -}}
      {{- $label := $zone -}}
      {{- if kindIs "map" $zone -}}
        {{- $name = $zone.name -}}
        {{- $label = $zone.zone | default $zone.name -}}
      {{- end -}}
      {{- $sets = append $sets (dict "name" (printf "%s-%s" $component $name)
          "component" $component "zone" $label "replicas" (int $share)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $result := list -}}
{{- range $set := $sets -}}
  {{- $others := 0 -}}
  {{- range $other := $sets -}}
    {{- if and (ne $other.name $set.name)
        (or $.Values.combined (eq $other.component $set.component)) -}}
      {{- $others = add1 $others -}}
    {{- end -}}
  {{- end -}}
  {{- $held := and (gt (int $others) 0) (not (has $.Values.rollout (list "all" $set.name))) -}}
  {{- $result = append $result (merge (dict "held" $held) $set) -}}
{{- end -}}
{{- dict "sets" $result | toJson -}}
{{- end -}}

{{- define "tidemark.headless" -}}
{{- printf "%s-%s" (include "tidemark.fullname" .root) .component -}}
{{- end -}}

{{- /* The domain of the pods of a component. */ -}}
{{- define "tidemark.domain" -}}
{{- printf "%s.%s.svc.%s" (include "tidemark.headless" .) .root.Release.Namespace
    .root.Values.clusterDomain -}}
{{- end -}}

{{- /* The host names of the pods of a component, as {"hosts": [...]}. */ -}}
{{- define "tidemark.hosts" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $domain := include "tidemark.domain" . -}}
{{- $hosts := list -}}
{{- range $set := (include "tidemark.sets" $root | fromJson).sets -}}
  {{- if eq $set.component $component -}}
    {{- range $i := until (int $set.replicas) -}}
      {{- $hosts = append $hosts (printf "%s-%s-%d.%s" (include "tidemark.fullname" $root)
          $set.name $i $domain) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "hosts" $hosts | toJson -}}
{{- end -}}

{{- /* The value of --core. */ -}}
{{- define "tidemark.core" -}}
{{- $addresses := list -}}
{{- range $host := (include "tidemark.hosts" (dict "root" . "component" "core") | fromJson).hosts -}}
  {{- $addresses = append $addresses (printf "%s:%d" $host (int $.Values.ports.tidemark)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{- define "tidemark.clusterSecretName" -}}
{{- .Values.clusterSecret.existingSecret |
    default (printf "%s-cluster-secret" (include "tidemark.fullname" .)) -}}
{{- end -}}

{{- /* The Secret with the certificate of a component. */ -}}
{{- define "tidemark.tlsSecretName" -}}
{{- if .root.Values.tls.certManager.enabled -}}
{{- printf "%s-%s-tls" (include "tidemark.fullname" .root) .component -}}
{{- else -}}
{{- .root.Values.tls.secretName -}}
{{- end -}}
{{- end -}}

{{- /* Whether the chart makes the authority of servers, or of clients: "true" or "". */ -}}
{{- define "tidemark.ownServerCA" -}}
{{- if and .Values.tls.enabled .Values.tls.certManager.enabled
    (not .Values.tls.certManager.issuerRef.name) }}true{{ end -}}
{{- end -}}
{{- define "tidemark.ownClientCA" -}}
{{- if and .Values.tls.enabled .Values.tls.certManager.enabled
    (not .Values.tls.certManager.clientIssuerRef.name)
    (not .Values.tls.clientCA.secretName) (not .Values.tls.clientCA.configMapName) }}true{{ end -}}
{{- end -}}

{{- /*
Where the authority of servers is, as {"kind": "secret" or "configMap", "name": ..., "key": ...};
likewise that of clients.
*/ -}}
{{- define "tidemark.peerCA" -}}
{{- $ca := .root.Values.tls.peerCA -}}
{{- if $ca.secretName -}}
{{- dict "kind" "secret" "name" $ca.secretName "key" $ca.key | toJson -}}
{{- else if $ca.configMapName -}}
{{- dict "kind" "configMap" "name" $ca.configMapName "key" $ca.key | toJson -}}
{{- else -}}
{{- dict "kind" "secret" "name" (include "tidemark.tlsSecretName" .) "key" "ca.crt" | toJson -}}
{{- end -}}
{{- end -}}
{{- define "tidemark.clientCA" -}}
{{- $ca := .Values.tls.clientCA -}}
{{- if $ca.secretName -}}
{{- dict "kind" "secret" "name" $ca.secretName "key" $ca.key | toJson -}}
{{- else if $ca.configMapName -}}
{{- dict "kind" "configMap" "name" $ca.configMapName "key" $ca.key | toJson -}}
{{- else -}}
{{- dict "kind" "secret" "name" (printf "%s-client-ca" (include "tidemark.fullname" .))
    "key" "tls.crt" | toJson -}}
{{- end -}}
{{- end -}}

{{- /* One source of a projected volume: a file of an authority. */ -}}
{{- define "tidemark.caSource" -}}
{{- $from := .from -}}
- {{ $from.kind }}:
    name: {{ $from.name }}
    items:
      - key: {{ $from.key }}
        path: {{ .path }}
{{- end -}}

{{- /* The names by which clients reach the Service. */ -}}
{{- define "tidemark.serviceNames" -}}
{{- $name := include "tidemark.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
{{- dict "names" (list $name (printf "%s.%s" $name $namespace)
    (printf "%s.%s.svc" $name $namespace)
    (printf "%s.%s.svc.%s" $name $namespace .Values.clusterDomain)) | toJson -}}
{{- end -}}

{{- define "tidemark.endpoint" -}}
{{- printf "%s.%s.svc.%s:%d" (include "tidemark.fullname" .) .Release.Namespace
    .Values.clusterDomain (int .Values.service.port) -}}
{{- end -}}

{{- /* The Secret with the certificate of the client that `helm test` runs, or "". */ -}}
{{- define "tidemark.testClientSecret" -}}
{{- if .Values.tests.clientSecretName -}}
{{- .Values.tests.clientSecretName -}}
{{- else if and .Values.tls.certManager.enabled .Values.tls.certManager.clients
    (or (include "tidemark.ownClientCA" .) .Values.tls.certManager.clientIssuerRef.name) -}}
{{- printf "%s-client-%s" (include "tidemark.fullname" .)
    (first .Values.tls.certManager.clients) -}}
{{- end -}}
{{- end -}}

{{- /* What the ConfigMap of the release says of the servers: "core=3 node-a=2". */ -}}
{{- define "tidemark.layout" -}}
{{- $layout := list -}}
{{- range $set := (include "tidemark.sets" . | fromJson).sets -}}
  {{- $layout = append $layout (printf "%s=%d" $set.name (int $set.replicas)) -}}
{{- end -}}
{{- join " " $layout -}}
{{- end -}}
