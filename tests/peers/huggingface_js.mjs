// Counts the repositories on stdin, some with a path, with `@huggingface/hub`. Prints one line of JSON for each.
import { createInterface } from "node:readline";
import { parseSafetensorsMetadata } from "@huggingface/hub";

for await (const line of createInterface({ input: process.stdin })) {
	const [repo, path] = line.split(" ");
	const answer = { repo };
	try {
		const parsed = await parseSafetensorsMetadata({
			repo,
			path: path || undefined,
			computeParametersCount: true,
			hubUrl: process.env.HF_ENDPOINT,
		});
		answer.count = parsed.parameterCount;
	} catch (error) {
		answer.error = String(error);
	}
	console.log(JSON.stringify(answer));
}
