// Counts the repositories that stdin names, as `@huggingface/hub` does: one line of JSON for each.
import { createInterface } from "node:readline";
import { parseSafetensorsMetadata } from "@huggingface/hub";

for await (const repo of createInterface({ input: process.stdin })) {
	const answer = { repo };
	try {
		const parsed = await parseSafetensorsMetadata({
			repo,
			computeParametersCount: true,
			hubUrl: process.env.HF_ENDPOINT,
		});
		answer.count = parsed.parameterCount;
	} catch (error) {
		answer.error = String(error);
	}
	console.log(JSON.stringify(answer));
}
